MERGE `p.d.dest` AS `t`
USING (
  SELECT `p`.*
  FROM (
    SELECT `o`.*, MAX(IF(`o`.`value` IS NULL, `o`.`position`, NULL)) OVER (
      PARTITION BY `o`.`key`.`k`.`a`, `o`.`key`.`k`.`b`.`c`, `o`.`key`.`k`.`b`.`at`
    ) AS `deletedAt`
    FROM (
      SELECT `d`.*, ROW_NUMBER() OVER (
        PARTITION BY `d`.`key`.`k`.`a`, `d`.`key`.`k`.`b`.`c`, `d`.`key`.`k`.`b`.`at`
        ORDER BY `d`.`batchNumber`, `d`.`i`
      ) AS `position`
      FROM (
        SELECT `x`.*
        FROM `p.d._dest_tmp_p_1_2` AS `x`
        WHERE `x`.`batchNumber` BETWEEN @first AND @last
        QUALIFY ROW_NUMBER() OVER (PARTITION BY `x`.`batchNumber`, `x`.`i` ORDER BY `x`.`i`) = 1
      ) AS `d`
    ) AS `o`
  ) AS `p`
  WHERE (`p`.`deletedAt` IS NULL OR `p`.`position` >= `p`.`deletedAt`)
) AS `batch`
ON `batch`.`value` IS NULL AND
  COALESCE(`t`.`k`.`a`, 0) = COALESCE(`batch`.`key`.`k`.`a`, 0) AND (`t`.`k`.`a` IS NULL) = (`batch`.`key`.`k`.`a` IS NULL) AND
  COALESCE(`t`.`k`.`b`.`c`, '') = COALESCE(`batch`.`key`.`k`.`b`.`c`, '') AND (`t`.`k`.`b`.`c` IS NULL) = (`batch`.`key`.`k`.`b`.`c` IS NULL) AND
  COALESCE(`t`.`k`.`b`.`at`, TIMESTAMP '1970-01-01 00:00:00+00') = COALESCE(`batch`.`key`.`k`.`b`.`at`, TIMESTAMP '1970-01-01 00:00:00+00') AND (`t`.`k`.`b`.`at` IS NULL) = (`batch`.`key`.`k`.`b`.`at` IS NULL)

WHEN MATCHED THEN DELETE
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `k`,
  `name`

) VALUES (
  `batch`.`key`.`k`,
  `batch`.`value`.`name`

)

