from perseid.cli.loglines import Entry, about, entries, merged, shown

WORKER = """\
starting
2026-11-21 10:00:00,100 INFO perseid.worker wordcount generation 1: running
2026-11-21 10:00:02,000 ERROR perseid.worker wordcount failed
Traceback (most recent call last):
  File "job.py", line 3, in process
ValueError: 7
2026-11-21 10:00:05,000 INFO perseid.worker grep generation 1: running
"""
SPARK = "26/11/21 10:00:03 WARN TaskSetManager: lost task\n"
BROKER = "2026-11-21T10:00:01.500 INFO KafkaRaftServer: started\n"


JSON = """\
{"time": "2026-11-21T10:00:04.000+00:00", "level": "INFO", "message": "a\\nb", "job": "grep"}
printed by an operator
{"time": "2026-11-21T10:00:06.000+00:00", "level": "INFO", "message": "c", "job": "grepper"}
"""


def cut(process: str, text: str) -> list[Entry]:
    return list(entries(process, text.splitlines()))


def test_a_traceback_belongs_to_the_line_before_it() -> None:
    found = cut("w1", WORKER)
    assert [entry.text.splitlines()[-1] for entry in found] == [
        "starting",
        "2026-11-21 10:00:00,100 INFO perseid.worker wordcount generation 1: running",
        "ValueError: 7",
        "2026-11-21 10:00:05,000 INFO perseid.worker grep generation 1: running",
    ]
    assert "\n".join(entry.text for entry in found) + "\n" == WORKER


def test_only_entries_about_the_job_and_no_other_of_a_like_name() -> None:
    found = list(about("wordcount", cut("w1", WORKER)))
    assert len(found) == 2
    assert "ValueError: 7" in found[1].text
    assert list(about("word", cut("w1", WORKER))) == []
    assert list(about("count", cut("w1", "2026-11-21 10:00:00 INFO word-count runs"))) == []


def test_files_are_merged_by_time_whatever_their_date_format() -> None:
    found = merged([cut("w1", WORKER), cut("kafka", BROKER), cut("spark-worker", SPARK)])
    names = [entry.process for entry in found]
    assert names == ["w1", "w1", "kafka", "w1", "spark-worker", "w1"]


def test_json_lines_are_entries_with_their_time() -> None:
    found = list(merged([cut("w1", WORKER), cut("w2", JSON)]))
    assert [entry.process for entry in found] == ["w1", "w1", "w1", "w2", "w1", "w2"]
    (named,) = about("grep", cut("w2", JSON))
    assert named.text.splitlines()[1:] == ["printed by an operator"]
    assert named.time == "2026-11-21T10:00:04.000"


def test_each_line_names_its_process_only_with_several_processes() -> None:
    entry = Entry("w1", "", "a\nb")
    assert shown(entry, with_process=False) == "a\nb"
    assert shown(entry, with_process=True) == "w1         a\nw1         b"
