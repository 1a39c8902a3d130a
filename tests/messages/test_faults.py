"""What is said of a request that does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from debug_server.errors import InvalidInputError
from debug_server.messages import CreateToken, ExecCommand, Request, StartRun, SubmitCommand, WaitCommand
from debug_server.messages.faults import faults_of, sentence_of, validated


def refused(kind: type[Request], **fields: object) -> ValidationError:
    """Why these fields are no such request."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(fields)
    return caught.value


def test_a_fault_names_field_reason_and_value() -> None:
    """The field by its path, the reason in lower case and without the library's words, the value that was given."""
    error = refused(CreateToken, name="a\nb", scopes=[], expires_in=0)
    assert [fault.message for fault in faults_of(error)] == [
        r"name: it contains a line break or another unprintable character, not 'a\nb'",
        "scopes: must not be empty",
        "expires_in: must be greater than 0, not 0",
    ]
    assert sentence_of(error) == "; ".join(fault.message for fault in faults_of(error))


def test_values_that_may_be_secrets_are_not_shown() -> None:
    """What is in a command's environment stays out of the sentence; so does a value of many characters."""
    error = refused(SubmitCommand, session_id="x" * 100, argv=["true"], env={"KEY": 17})
    assert sentence_of(error) == ("env.KEY: must be a string; session_id: must be a whole number")


def test_a_fault_of_no_single_field_is_that_of_the_whole() -> None:
    """Which is called as the caller knows it."""
    error = refused(StartRun, repository="r", commit="a", commit_sha="b", argv=["true"])
    assert sentence_of(error, whole="request").startswith("request: commit is another name for commit_sha")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"comit": "HEAD"}, "comit: unknown field: did you mean 'commit'?"),
        ({"command": "ls"}, "command: unknown field: did you mean 'argv'?"),
        ({"workdir": "src"}, "workdir: unknown field: did you mean 'cwd'?"),
        (
            {"repositry": "r", "Argv": ["true"]},
            "repositry: unknown field: did you mean 'repository'?; Argv: unknown field: did",
        ),
        ({"limits": {"memory_byte": 1}}, "limits.memory_byte: unknown limit: did you mean 'memory_bytes'?"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(given: dict[str, Any], said: str) -> None:
    """Also several at once, and inside another field; a name like no other is answered with all."""
    whole = {"repository": "r", "commit": "HEAD", "argv": ["true"], **given}
    assert said in sentence_of(refused(StartRun, **whole))
    assert "use one of expires_in, name, quotas" in sentence_of(refused(CreateToken, name="n", zzzz=1))


def test_other_faults_are_told_beside_an_unknown_name() -> None:
    """Every wrong field at once; a field that is missing because its name is misspelt is told once."""
    with pytest.raises(InvalidInputError) as caught:
        validated(ExecCommand, {"argv": "ls", "timout": 3, "limits": {"memory": 1}}, strict=True)
    assert [(one.field, one.reason.partition(", for")[0]) for one in caught.value.violations] == [
        ("timout", "unknown field: did you mean 'timeout'?"),
        ("argv", "must be a list, not 'ls'"),
        ("limits.memory", "in requests this limit is named memory_bytes, in bytes"),
    ]
    with pytest.raises(InvalidInputError) as caught:
        validated(CreateToken, {"nam": "me", "expires_in": 0})
    assert [one.field for one in caught.value.violations] == ["nam", "expires_in"]


def test_a_few_faults_are_told_and_that_there_are_more() -> None:
    """Ten wrong fields do not make ten sentences."""
    sentence = sentence_of(refused(CreateToken, name="n", **{f"more{number}": 1 for number in range(10)}))
    assert sentence.count("; ") == 5 and sentence.endswith("; ...")


def test_a_wrong_value_is_answered_with_an_example() -> None:
    """The example is the field's own, or its default; also inside another field."""
    with pytest.raises(InvalidInputError) as caught:
        validated(WaitCommand, {"command_id": 1, "timeout": "soon"})
    assert str(caught.value) == "timeout: must be a number, not 'soon', for example 30"
    assert caught.value.field == "timeout"
    with pytest.raises(InvalidInputError, match=r'^argv: field required, for example \["pytest", "-q"\]$'):
        validated(SubmitCommand, {"session_id": 1})
    fields = {"repository": "r", "commit": "HEAD", "argv": "ls", "limits": {"wall_seconds": "long"}}
    with pytest.raises(InvalidInputError) as caught:
        validated(StartRun, fields, strict=True)
    assert [one.field for one in caught.value.violations] == ["argv", "limits.wall_seconds"]
    assert caught.value.violations[1].reason == "must be a number, not 'long', for example 3600.0"
