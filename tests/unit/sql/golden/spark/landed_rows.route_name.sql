SELECT
  `key`.`carrier` AS `carrier`,
  `key`.`flight` AS `flight`,
  `value`.`delay``s` AS `delay``s`,
  `value`.`version` AS `version`,
  `kafka`.`partition` AS `__partition`,
  `op` AS `__op`,
  `batchNumber` AS `__batch`,
  `i` AS `__i`,
  `kafka` AS `__kafka`

FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
WHERE `batchNumber` BETWEEN :first AND :last
  AND `revision` IS NULL
  AND `error` IS NULL
  AND CASE WHEN `key`.`carrier` IS NULL THEN `op` = 'delete' ELSE translate(CAST(`key`.`carrier` AS STRING), 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz') IN (:route_name_0, :route_name_1) END
  AND `key` IN (
    SELECT `key` FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
    WHERE `batchNumber` BETWEEN 3 AND 5 AND `error` IS NULL
  )
