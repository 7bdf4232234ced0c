"""The names of the operators that come with perseid: for whoever checks a job and builds none."""

NAMES: tuple[str, ...] = (
    "AsOf", "CountByKey", "Decaying", "Distinct", "Grep", "HeavyHitters", "Join", "KMeans",
    "LogisticRegression", "ModelAverage", "RippleJoin", "RunningSum", "Sum", "TopK", "Window",
)  # fmt: skip
STATELESS = ("Grep",)  # called for splits and not for partitions, so without a key
