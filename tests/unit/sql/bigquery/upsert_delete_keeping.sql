MERGE `p.d.dest` AS `t`
USING (
  SELECT `x`.`key`, `x`.`value`, `x`.`partitionTime`
    , LAST_VALUE(
      IF(`x`.`value` IS NULL OR @unchanged_0 NOT IN UNNEST(`x`.`kept`), STRUCT(`x`.`value`.`doc` AS `value`), NULL)
      IGNORE NULLS
    ) OVER (
      PARTITION BY `x`.`key`.`id`
      ORDER BY `x`.`batchNumber`, `x`.`i` ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS `brought_0`
    , LAST_VALUE(
      IF(`x`.`value` IS NULL OR @unchanged_1 NOT IN UNNEST(`x`.`kept`), STRUCT(`x`.`value`.`raw` AS `value`), NULL)
      IGNORE NULLS
    ) OVER (
      PARTITION BY `x`.`key`.`id`
      ORDER BY `x`.`batchNumber`, `x`.`i` ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS `brought_1`
    , LAST_VALUE(
      IF(`x`.`value` IS NULL OR @unchanged_2 NOT IN UNNEST(`x`.`kept`), STRUCT(`x`.`value`.`tags` AS `value`), NULL)
      IGNORE NULLS
    ) OVER (
      PARTITION BY `x`.`key`.`id`
      ORDER BY `x`.`batchNumber`, `x`.`i` ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS `brought_2`
  FROM `p.d._dest_tmp_p_1_2` AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY `x`.`key`.`id`
    ORDER BY `x`.`batchNumber` DESC, `x`.`i` DESC
  ) = 1

) AS `batch`
ON
  COALESCE(`t`.`id`, 0) = COALESCE(`batch`.`key`.`id`, 0) AND (`t`.`id` IS NULL) = (`batch`.`key`.`id` IS NULL)

WHEN MATCHED AND `batch`.`value` IS NULL THEN DELETE
WHEN MATCHED AND `batch`.`value` IS NOT NULL THEN UPDATE SET
  `name` = `batch`.`value`.`name`,
  `doc` = IF(`batch`.`brought_0` IS NULL, `t`.`doc`, PARSE_JSON(`batch`.`brought_0`.`value`, wide_number_mode => 'round')),
  `raw` = IF(`batch`.`brought_1` IS NULL, `t`.`raw`, `batch`.`brought_1`.`value`),
  `tags` = IF(`batch`.`brought_2` IS NULL, `t`.`tags`, `batch`.`brought_2`.`value`),
  `n` = `batch`.`value`.`n`
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `_PARTITIONTIME`,
  `id`,
  `name`,
  `doc`,
  `raw`,
  `tags`,
  `n`

) VALUES (
  TIMESTAMP_TRUNC(`batch`.`partitionTime`, HOUR),
  `batch`.`key`.`id`,
  `batch`.`value`.`name`,
  PARSE_JSON(`batch`.`brought_0`.`value`, wide_number_mode => 'round'),
  `batch`.`brought_1`.`value`,
  `batch`.`brought_2`.`value`,
  `batch`.`value`.`n`

)

