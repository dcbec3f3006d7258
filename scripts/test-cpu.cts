/**
 * Loaded into each process of a test before its own code (`scripts/test.ts`), and into its threads: hands on at its end what
 * the kernel tells of it, which is forgotten with the process. No `import`, which would cost more than all of this.
 */
{
  const file = process.env['OUTPOST_TEST_CPU']
  if (file !== undefined && process.getBuiltinModule('node:worker_threads').isMainThread) {
    const { appendFileSync, readFileSync } = process.getBuiltinModule('node:fs')
    const keep = () => appendFileSync(file, `${process.argv[1]}\t${readFileSync('/proc/self/stat', 'latin1')}`)
    process.once('exit', keep)
  }
}
