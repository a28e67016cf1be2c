SELECT
  `key`.`carrier` AS `carrier`,
  `key`.`flight` AS `flight`,
  `value`.`delay``s` AS `delay``s`,
  `value`.`version` AS `version`,
  `kafka`.`partition` AS `__partition`,
  `value`.`body` AS `body`,
  `op` AS `__op`,
  named_struct(
    'c0', array_contains(`kept`, :kept_0) <=> true,
    'c1', array_contains(`kept`, :kept_1) <=> true
  ) AS `__kept`,
  `batchNumber` AS `__batch`,
  `i` AS `__i`,
  `kafka` AS `__kafka`

FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
WHERE `batchNumber` BETWEEN :first AND :last
  AND `revision` IS NULL
  AND `error` IS NULL
