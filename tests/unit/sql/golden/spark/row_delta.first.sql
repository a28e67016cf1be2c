SELECT
  s.`carrier` AS `carrier`,
  s.`flight` AS `flight`,
  s.`delay``s` AS `delay``s`,
  s.`version` AS `version`,
  s.`__partition` AS `__partition`,
  s.`__op`,
  0 AS `__hit`,
  CAST(NULL AS STRING) AS `__file`,
  CAST(NULL AS BIGINT) AS `__pos`,
  s.`__op` <> 'delete' AS `__writes`,
  false AS `__removes`
FROM `batchmerge_changes` AS s
