SELECT
  `kafka`.`topic` AS `topic`,
  `kafka`.`partition` AS `partition`,
  `kafka`.`offset` AS `offset`,
  `kafka`.`timestamp` AS `timestamp`,
  `batchNumber` AS `batch`,
  `i`,
  `error`.`stage` AS `stage`,
  `error`.`kind` AS `kind`,
  `error`.`message` AS `message`
  , `error`.`key` AS `key`
  , `error`.`value` AS `value`
  , `error`.`headers` AS `headers`
FROM `lake`.`landing`.`flights_tmp`
WHERE `error` IS NOT NULL AND `batchNumber` BETWEEN :first AND :last
ORDER BY `batchNumber`, `i`
LIMIT :most
