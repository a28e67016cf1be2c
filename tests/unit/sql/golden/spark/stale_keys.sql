WITH `landed` AS (
  SELECT * FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42 AS r
  WHERE `key` IS NOT NULL AND `batchNumber` BETWEEN :first AND :last
),
`refused` AS (
  SELECT l.`key`, l.`batchNumber`, l.`i`
  FROM `landed` AS l
  JOIN `x` AS x
  ON l.`batchNumber` = x.`batch` AND l.`kafka`.`topic` = x.`topic` AND l.`kafka`.`partition` = x.`partition`
  AND l.`kafka`.`offset` = x.`offset`
  WHERE l.`error`.`kind` IS NULL
),
`missing` AS (
  SELECT `key`, max(struct(`batchNumber`, `i`)) AS `place`
  FROM (
    SELECT `key`, `batchNumber`, `i` FROM `landed`
    WHERE `error`.`kind` IS NOT NULL AND `error`.`stage` <> 'key'
    UNION ALL
    SELECT * FROM `refused`
  )
  GROUP BY `key`
),
`there` AS (
  SELECT `key`, max(struct(`batchNumber`, `i`)) AS `place`
  FROM (
    SELECT `key`, `batchNumber`, `i` FROM `landed`
    WHERE `error`.`kind` IS NULL
    AND `op` <> 'delete'

    EXCEPT SELECT * FROM `refused`
  )
  WHERE `key` IN (SELECT `key` FROM `missing`)
  GROUP BY `key`
)
SELECT count(*) AS `keys`
FROM `missing` LEFT ANTI JOIN `there`
ON `missing`.`key` = `there`.`key` AND `there`.`place` >= `missing`.`place`
