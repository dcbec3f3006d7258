/** The next active server: a second core on a copy of the entries, as after a kill of the active server. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { CoreWorld, type WorldOptions } from './core-world.ts'
import { copyDatabase } from './step-copies.ts'

/** The world of another server with the durable entries of `world`, at the same time. `world` is left as it is. */
export async function takeOver(t: TestContext, world: CoreWorld, options: WorldOptions = {}): Promise<CoreWorld> {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-takeover-'))
  copyDatabase(join(world.directory, 'secrets.db'), join(directory, 'secrets.db'))
  const next = await CoreWorld.reopen(directory, world.keys, { nowMs: world.nowMs, ...options })
  t.after(async () => {
    await next.close()
    rmSync(directory, { recursive: true, force: true })
  })
  return next
}
