"""Maintenance: keeps the pipeline's tables small and fast, while pipelines run (`docs/operations.md`).

================  =====================================================================================================
task              what it does
================  =====================================================================================================
`branches`        removes branches of dead runs; those of running attempts are younger
`landed`          deletes landed batches that every table has merged and that are old enough
`compaction`      rewrites small data files as large ones
`manifests`       rewrites many small manifests as few
`snapshots`       expires old snapshots, with the files that only they have
`orphans`         removes files that no snapshot has, written by dead runs
`clean_up`        removes what merges leave in other systems: staged rows, rows that stand for deletes
================  =====================================================================================================

Merges have priority. A MERGE is valid only on its base, so a compaction of such a table is written to a branch, and
published only if the table has not moved and no merge is running; else it is dropped and tried again another day.
Appends can be rebased, so tables with appends only are compacted directly. Committed states remain readable: a tag
keeps the newest batch's snapshot, and the ancestors of a branch's head back to the oldest known landed batch are never
expired.
"""
