MERGE `p.d.dest` AS `t`
USING (
  SELECT `p`.*
  FROM (
    SELECT `o`.*, MAX(IF(`o`.`value` IS NULL, `o`.`position`, NULL)) OVER (
      PARTITION BY `o`.`key`.`id`
    ) AS `deletedAt`
    FROM (
      SELECT `d`.*, ROW_NUMBER() OVER (
        PARTITION BY `d`.`key`.`id`
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
  `t`.`id` = `batch`.`key`.`id`
  AND (`t`.`_PARTITIONTIME` IS NULL OR `t`.`_PARTITIONTIME` >= TIMESTAMP '0001-01-01')

WHEN MATCHED THEN DELETE
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `_PARTITIONTIME`,
  `id`,
  `name`,
  `amount`,
  `day`

) VALUES (
  TIMESTAMP_TRUNC(`batch`.`partitionTime`, HOUR),
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  `batch`.`value`.`amount`,
  `batch`.`value`.`day`

)

