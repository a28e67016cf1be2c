SELECT
  `key`.`carrier` AS `carrier`,
  `key`.`flight` AS `flight`,
  `value`.`delay``s` AS `delay``s`,
  `value`.`version` AS `version`,
  `kafka`.`partition` AS `__partition`,
  `op` AS `__op`,
  `value`.`version` AS `__order`,
  `batchNumber` AS `__batch`,
  `i` AS `__i`,
  `kafka` AS `__kafka`

FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
WHERE `batchNumber` BETWEEN :first AND :last
  AND `revision` IS NULL
  AND `error` IS NULL
  AND `value`.`version` >= 7
