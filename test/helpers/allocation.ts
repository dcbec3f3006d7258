/** An allocation on disk, as a supervisor leaves it. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

export const ALLOC = 'a1b2c3d4-0000-4000-8000-000000000001'
export const NODE = 'a1b2c3d4-1111-4111-8111-111111111111'
export const UNKNOWN = 'a1b2c3d4-ffff-4fff-8fff-ffffffffffff'

/** An allocation with the task `web`: a log, a file to read, a secret and a private file. */
export function makeAllocation(allocDir: string, id: string, manifest: Readonly<Record<string, unknown>> = {}): string {
  const directory = join(allocDir, id)
  for (const path of ['alloc/logs', 'alloc/data', 'web/local', 'web/secrets', 'web/private']) {
    mkdirSync(join(directory, path), { recursive: true })
  }
  writeFileSync(join(directory, 'web/local/hello.txt'), INSIDE)
  writeFileSync(join(directory, 'web/secrets/token'), SECRET)
  writeFileSync(join(directory, 'web/private/key'), SECRET)
  writeFileSync(join(directory, 'alloc/logs/web.stdout.0'), 'a line of the log\n')
  writeFileSync(
    join(directory, 'alloc.json'),
    JSON.stringify({
      ID: id,
      Namespace: 'default',
      ClientStatus: 'running',
      Tasks: { web: { State: 'running', StartedAt: '2026-11-21T10:00:00Z' } },
      ...manifest,
    }),
  )
  return directory
}

export const INSIDE = 'hello from inside, which anybody may read\n'
export const SECRET = 'S3CR3T-that-nobody-may-ever-read'
