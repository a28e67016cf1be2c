SELECT
  s.`carrier` AS `carrier`,
  s.`flight` AS `flight`,
  s.`delay``s` AS `delay``s`,
  s.`version` AS `version`,
  s.`__partition` AS `__partition`,
  s.`__op`,
  coalesce(h.`__hit`, 0) AS `__hit`,
  h.`__file`,
  h.`__pos`,
  s.`__op` <> 'delete' AND (h.`__hit` IS NULL OR h.`__hit` = 1 AND h.`__all_apply`) AS `__writes`,
  coalesce(h.`__applies`, false) AS `__removes`
FROM `batchmerge_changes` AS s
LEFT JOIN (
  SELECT *,
    row_number() OVER (PARTITION BY `__batch`, `__i` ORDER BY `__file`, `__pos`) AS `__hit`,
    min(`__applies`) OVER (PARTITION BY `__batch`, `__i`) AS `__all_apply`
  FROM (
    SELECT /*+ BROADCAST(s) */
      s.`__batch`, s.`__i`, t.`_file` AS `__file`, t.`_pos` AS `__pos`,
      true AS `__applies`
    FROM `lake`.`air`.`flights`.`branch_attempt--p--main--1f` AS t
    JOIN `batchmerge_changes` AS s
    ON t.`carrier` = s.`carrier` AND t.`flight` = s.`flight` AND t.`carrier` BETWEEN CAST(:min_0 AS string) AND CAST(:max_0 AS string) AND t.`flight` BETWEEN CAST(:min_1 AS int) AND CAST(:max_1 AS int)
  )
) AS h
ON s.`__batch` = h.`__batch` AND s.`__i` = h.`__i`
