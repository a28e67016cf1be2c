CALL `lake`.system.rewrite_data_files(
  table => '`lake`.`air`.`flights`',
  branch => 'main',
  strategy => 'binpack',
  options => map(
    'min-input-files', '5',
    'delete-file-threshold', '3',
    'remove-dangling-deletes', 'true'
  )
)
