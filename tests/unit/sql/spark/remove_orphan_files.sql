CALL `lake`.system.remove_orphan_files(
  table => '`lake`.`air`.`flights`',
  older_than => TIMESTAMP '2026-01-01 00:00:00',
  prefix_listing => false
)
