WITH `landed` AS (
  SELECT * FROM (
  SELECT r.*
  FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42 AS r
  LEFT ANTI JOIN (
    SELECT `batchNumber`, `i`, max(`revision`) AS `newest`
    FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
    WHERE `revision` IS NOT NULL AND `revision` <= 9
    GROUP BY `batchNumber`, `i`
  ) AS n
  ON r.`batchNumber` = n.`batchNumber` AND r.`i` = n.`i` AND coalesce(r.`revision`, 0) < n.`newest`
  WHERE coalesce(r.`revision`, 0) <= 9
) AS r
  WHERE `key` IS NOT NULL AND `batchNumber` BETWEEN :first AND :last
),
`refused` AS (
  SELECT `key`, `batchNumber`, `i` FROM `landed` WHERE false
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
    AND `op` <> 'filtered'
    AND `op` <> 'delete'
    AND `kept` IS NULL

    EXCEPT SELECT * FROM `refused`
  )
  WHERE `key` IN (SELECT `key` FROM `missing`)
  GROUP BY `key`
)
SELECT count(*) AS `keys`
FROM `missing` LEFT ANTI JOIN `there`
ON `missing`.`key` = `there`.`key` AND `there`.`place` >= `missing`.`place`
