"""How the files of a source become records, for our own readers; and why one of them cannot be read."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence
from pathlib import Path

from tidegate.core import storage
from tidegate.core.hive_names import read_folder
from tidegate.sources.bounds import TOO_LARGE
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.spec.ddl import Column, parse_ddl, show_ddl
from tidegate.spec.models import FilesSource, KafkaSource
from tidegate.spec.reader_options import OPTIONS_OF_FILES, parser_options

_FOR_TEXTS = {"lineSep", "header"}
"""Options of files that say how the text of a record was written: a csv file with a header may have one more separator
at the end of each line."""


def form_of(spec: FilesSource, in_folders: Sequence[str] = ()) -> Form:
    """How records of ``spec`` become columns; the values of the columns ``in_folders`` are in the names of folders."""
    schema = "value STRING" if spec.schema is None else spec.schema
    return Form(spec.format, schema, spec.unknown_fields, parser_options(spec), in_folders)


def form_of_texts(spec: FilesSource | KafkaSource, in_folders: Sequence[str] = ()) -> Form:
    """How texts that are at hand, each a record of ``spec``, become columns; those ``in_folders`` are at hand too."""
    columns = parse_ddl(spec.schema) if spec.schema else [Column("value", "STRING", True)]
    of_files = OPTIONS_OF_FILES - _FOR_TEXTS
    options = {key: value for key, value in parser_options(spec).items() if key not in of_files}
    schema = show_ddl([column for column in columns if column.name not in in_folders])
    is_reported = isinstance(spec, KafkaSource) and spec.format != "json"
    return Form(spec.format, schema, "report" if is_reported else spec.unknown_fields, options)


def form_below(path: Path, spec: FilesSource) -> Form:
    """The same for a link in an intake folder: the ``k=v`` folders right above it say which columns these are."""
    names = itertools.takewhile(lambda name: "=" in name, (folder.name for folder in path.parents))
    return form_of(spec, [found[0] for name in names if (found := read_folder(name)) is not None])


def find_fault(path: Path, spec: FilesSource, *, is_read: bool = False) -> str | None:
    """Why the file at ``path`` cannot be read to its end, or None when it can (or is away: that is another error).

    What it says of itself is looked at, and a packed file is unpacked; with ``is_read`` all records are read, and one
    that is too large is a fault.
    """
    from tidegate.sources.readers.folder_values import FolderValues
    from tidegate.sources.readers.part_readers import Part, open_reader

    try:
        form = form_below(path, spec)
        FolderValues(form.list_in_folders()).find(str(path))
        reader = open_reader(form)
        reader.check(str(path))
        if is_read:
            for found in reader.read(Part(str(path), 0, None)):
                for at, wrong in found.batch.wrong.items():
                    if TOO_LARGE in wrong.detail:
                        return f"record {found.numbers[at]:,}: {wrong.detail}"
    except FileNotFoundError:
        return None
    except PartUnreadable as fault:
        return fault.reason if fault.errno is None else _explain(OSError(fault.errno, fault.reason), path)
    except OSError as error:
        return _explain(error, path)
    return None


def _explain(error: OSError, path: Path) -> str | None:
    """What the operating system says of a file. Raises what is the machine's fault: the next run may well read it."""
    if error.errno == errno.ENOENT:
        return None
    # A file on a bad block stays unreadable; what else a file system reports may be over at the next run.
    if error.errno != errno.EIO and (failed := storage.name_failure(error, path)) is not None:
        raise failed from error
    return f"{type(error).__name__}: {error.strerror or error}"
