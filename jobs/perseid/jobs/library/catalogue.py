"""The names of the library's operators, for checks of a job that build no operator."""

NAMES: tuple[str, ...] = (
    "AsOf", "CountByKey", "Decaying", "Distinct", "Grep", "HeavyHitters", "Join", "KMeans",
    "LogisticRegression", "ModelAverage", "RippleJoin", "RunningSum", "Sum", "TopK", "Window",
)  # fmt: skip
STATELESS = ("Grep",)  # called for splits and not for partitions, so without a key
