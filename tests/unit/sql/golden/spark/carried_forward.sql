SELECT * EXCEPT (`body`, `delay``s`, `__kept`, `__brought`),
  `__brought`.`c0`.`value` AS `body`,
  `__brought`.`c1`.`value` AS `delay``s`,
  named_struct(
    'c0', `__brought`.`c0` IS NULL,
    'c1', `__brought`.`c1` IS NULL
  ) AS `__kept`
FROM (
  SELECT *,
    named_struct(
      'c0', last_value(
        CASE WHEN `__op` = 'delete' OR NOT `__kept`.`c0` THEN
          named_struct('value', CASE WHEN `__op` <> 'delete' THEN `body` END)
        END, true
      ) OVER up_to_here,
      'c1', last_value(
        CASE WHEN `__op` = 'delete' OR NOT `__kept`.`c1` THEN
          named_struct('value', CASE WHEN `__op` <> 'delete' THEN `delay``s` END)
        END, true
      ) OVER up_to_here
    ) AS `__brought`
  FROM (SELECT 1)
  WINDOW up_to_here AS (
    PARTITION BY `carrier`, `flight`
    ORDER BY `__batch`, `__i` ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
)
