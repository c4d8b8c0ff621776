"""The storage port: everything that tidegate does with its state, staging, tables and quarantine, in the few operations
that an object store has too. A path that begins with ``s3://``, ``gs://`` or ``az://`` (:class:`ObjectPath`) selects
the function of the same name in one of the modules for objects; any other one is of a file system.

==============================================  =======================================================
here                                            on an object store
==============================================  =======================================================
``read``, ``read_start``, ``read_end``,         GET, HEAD
``read_with_stat``,
``stat``, ``exists``
``list_names``, ``list_folder``,                LIST of a prefix; folders do not exist, and making or
``list_folders``, ``list_tree``                 removing one does nothing
``put_if_absent``                               PUT If-None-Match, then GET and compare
``replace``, ``touch``                          HEAD or GET, then PUT If-Match
``create``                                      PUT If-None-Match, when the block ends
``move``, ``place``, ``link``, ``clone``        PUT or copy, and for a move DELETE of the source
``is_same``                                     compare the writers' names, which copies keep
``remove``, ``remove_names``, ``remove_tree``   DELETE
``rename``                                      OSError: a copy and a DELETE would take its place
``store_time``                                  PUT, HEAD, DELETE of a probe
``take_away``                                   PUT If-Match of no bytes; what has none counts as absent
``set_modified``, ``refresh_time``              nothing: what was written has the time that it was given
``sync_file``, ``sync_folder`` and others       nothing: what was acknowledged is durable
``open_input``                                  GET of ranges, If-Match
``address``, ``real_path``                      the URI
==============================================  =======================================================

When a call returns, this is on disk, so that a record that says "done" can never outlive the thing it speaks of:

- ``put_if_absent``, ``replace``, ``create``, ``write_note``: the bytes, the name, and every folder that had to be made;
- ``move``: the names, the new one before the old one goes. The bytes are as durable as they were before: whoever wrote
  them syncs them first (``sync_file``);
- ``rename``: the names. ``place``: the bytes. ``link``: nothing. ``clone``: the bytes, where it has to copy them. The
  last three are for many files at a time; the caller then syncs their folders;
- ``remove``, ``take_away``, ``remove_tree``: nothing. After a power loss what was removed may be there again, and must
  do no harm.

What others write (Spark, pyarrow) is made durable by ``sync_files`` and ``sync_names_above``.

On NFS a request can be carried out and its reply lost; sent again it fails with EEXIST or ENOENT. So a link, a rename
or a replacement that fails that way is looked at: what it was to bring about may be there.
"""

from __future__ import annotations

from tidegate.core.storage.access import (
    CA_VARIABLE,
    child_environment,
    limit_patience,
    store_settings,
    use_login,
    use_settings,
)
from tidegate.core.storage.faults import (
    StoreError,
    disk_full,
    find_unwritable,
    is_disk_full,
    is_failure,
    name_cause,
    name_failure,
    name_java_cause,
    not_permitted,
    path_is_named,
)
from tidegate.core.storage.files import (
    UnreadableStateError,
    address,
    create,
    digest,
    dump_json,
    exists,
    free_bytes,
    has_name,
    is_same,
    list_folder,
    list_folders,
    list_names,
    list_tree,
    make_folder,
    open_input,
    put_if_absent,
    raise_unless_gone,
    read,
    read_end,
    read_json,
    read_note,
    read_start,
    read_with_stat,
    real_path,
    refresh_time,
    remove,
    remove_empty_folder,
    remove_names,
    remove_tree,
    replace,
    set_modified,
    stat,
    store_time,
    sync_file,
    sync_files,
    sync_folder,
    sync_folders,
    sync_names_above,
    sync_names_in,
    touch,
    unreadable_is_named,
    write_note,
)
from tidegate.core.storage.listed import forget_listings, listed_once, looks_are_cheap
from tidegate.core.storage.moving import clone, link, move, place, put_back_taken, remove_copies, rename, take_away
from tidegate.core.storage.object_path import (
    SCHEMES,
    ObjectPath,
    is_object,
    names_object,
    normalise,
    parse_path,
)
from tidegate.core.storage.shared import COPY_SUFFIX, Stat, count_requests, note_requests

__all__ = [
    "CA_VARIABLE",
    "COPY_SUFFIX",
    "SCHEMES",
    "ObjectPath",
    "Stat",
    "StoreError",
    "UnreadableStateError",
    "address",
    "child_environment",
    "clone",
    "count_requests",
    "create",
    "digest",
    "disk_full",
    "dump_json",
    "exists",
    "find_unwritable",
    "forget_listings",
    "free_bytes",
    "has_name",
    "is_disk_full",
    "is_failure",
    "is_object",
    "is_same",
    "limit_patience",
    "link",
    "list_folder",
    "list_folders",
    "list_names",
    "list_tree",
    "listed_once",
    "looks_are_cheap",
    "make_folder",
    "move",
    "name_cause",
    "name_failure",
    "normalise",
    "note_requests",
    "name_java_cause",
    "names_object",
    "not_permitted",
    "open_input",
    "parse_path",
    "path_is_named",
    "place",
    "put_back_taken",
    "put_if_absent",
    "raise_unless_gone",
    "read",
    "read_json",
    "read_note",
    "read_end",
    "read_start",
    "read_with_stat",
    "real_path",
    "refresh_time",
    "remove",
    "remove_copies",
    "remove_empty_folder",
    "remove_names",
    "remove_tree",
    "rename",
    "replace",
    "set_modified",
    "stat",
    "store_settings",
    "store_time",
    "sync_file",
    "sync_files",
    "sync_folder",
    "sync_folders",
    "sync_names_above",
    "sync_names_in",
    "take_away",
    "touch",
    "unreadable_is_named",
    "use_login",
    "use_settings",
    "write_note",
]
