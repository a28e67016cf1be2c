"""Maintenance: keeps the pipeline's tables small and quick, beside running pipelines (`docs/operations.md`).

================  =====================================================================================================
task              what it does
================  =====================================================================================================
`branches`        removes branches that dead runs left; those of running attempts are younger
`landed`          deletes landed batches that every table has merged and that are old enough
`compaction`      small data files become large ones
`manifests`       many small manifests become few
`snapshots`       expires old snapshots, with the files that only they have
`orphans`         removes files that no snapshot has: what dead runs wrote
`clean_up`        removes what merges leave in the system: replaced versions of rows, rows on their way
================  =====================================================================================================

It gives way. A MERGE is valid only on its base, so a compaction of such a table is written to a branch and published
only where nobody has moved the table and no attempt is under way; else it is dropped and made another day. Appends
rebase, so their tables are compacted on the spot. Committed states stay readable: the newest batch's snapshot is kept
by its tag, and the way from a branch's head back to the oldest landed batch that is still known is never cut.
"""
