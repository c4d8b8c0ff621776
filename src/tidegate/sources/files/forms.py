"""Makes the :class:`Form` that our readers need for a source, and checks whether a file can be read."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.hive_names import read_folder
from tidegate.sources import errors
from tidegate.sources.bounds import TOO_LARGE
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.unreadable import REPLACED, PartUnreadable, StoreFault
from tidegate.spec.ddl import Column, parse_ddl, show_ddl
from tidegate.spec.models import FilesSource, KafkaSource
from tidegate.spec.reader_options import OPTIONS_OF_FILES, parser_options

_FOR_TEXTS = {"lineSep", "header"}
"""File options that also matter for the text of one record: a csv file with a header may have one more separator at the
end of each line."""


def form_of(spec: FilesSource, in_folders: Sequence[str] = ()) -> Form:
    """The form of records of ``spec``; the values of the columns ``in_folders`` are in the names of folders."""
    schema = "value STRING" if spec.schema is None else spec.schema
    return Form(spec.format, schema, spec.unknown_fields, parser_options(spec), in_folders)


def form_of_texts(spec: FilesSource | KafkaSource, in_folders: Sequence[str] = ()) -> Form:
    """The form of stored texts, each a record of ``spec``; the columns ``in_folders`` are stored next to them."""
    columns = parse_ddl(spec.schema) if spec.schema else [Column("value", "STRING", True)]
    of_files = OPTIONS_OF_FILES - _FOR_TEXTS
    options = {key: value for key, value in parser_options(spec).items() if key not in of_files}
    schema = show_ddl([column for column in columns if column.name not in in_folders])
    is_reported = isinstance(spec, KafkaSource) and spec.format != "json"
    return Form(spec.format, schema, "report" if is_reported else spec.unknown_fields, options)


def form_below(path: Path, spec: FilesSource) -> Form:
    """The form of a link in an intake folder: the ``k=v`` folders right above it name the columns in folders."""
    names = itertools.takewhile(lambda name: "=" in name, (folder.name for folder in path.parents))
    return form_of(spec, [found[0] for name in names if (found := read_folder(name)) is not None])


def find_fault(path: Path, spec: FilesSource, *, is_read: bool = False) -> str | None:
    """Explain why the file at ``path`` cannot be read to its end; None when it can, or when it is missing.

    Checks the header or footer, and unpacks a compressed file. With ``is_read`` all records are read, and one that is
    too large is a fault.
    """
    from tidegate.sources.readers import part_readers, worker  # they import pyarrow, which an idle run does without

    try:
        form = form_below(path, spec)
        worker.FolderValues(form.list_in_folders()).find(str(path))
        reader = part_readers.open_reader(form)
        reader.check(str(path))
        if is_read:
            for found in reader.read(part_readers.Part(str(path), 0, None)):
                for at, wrong in found.batch.wrong.items():
                    if TOO_LARGE in wrong.detail:
                        return f"record {found.numbers[at]:,}: {wrong.detail}"
    except FileNotFoundError:
        return None
    except StoreFault as fault:
        raise TidegateError.from_dict(fault.error) from fault
    except PartUnreadable as fault:
        if fault.errno == REPLACED:
            raise errors.FILE_CHANGING(changes=fault.reason) from fault
        return fault.reason if fault.errno is None else _explain(OSError(fault.errno, fault.reason), path)
    except OSError as error:
        return _explain(error, path)
    return None


def _explain(error: OSError, path: Path) -> str | None:
    """Describe an error of the operating system. Raises a fault of the machine, which may be gone in the next run."""
    if error.errno == errno.ENOENT:
        return None
    # A file on a bad block stays unreadable; other faults of a file system may be temporary.
    if error.errno != errno.EIO and (failed := storage.name_failure(error, path)) is not None:
        raise failed from error
    return f"{type(error).__name__}: {error.strerror or error}"
