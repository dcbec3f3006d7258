/** The databases of a server: all pages of a stopped one, the newest state of a running one. */
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import { humanBytes } from '../../cli/output/table.ts'
import { isDatabaseLocked } from '../../storage/sqlite/database-files.ts'
import { checkPages, type DatabaseFacts, inspectDatabase } from '../../storage/store/database-check.ts'
import { CONFIG_PATH } from '../../storage/barrier/seal-entries.ts'
import { type DiagnosisContext, failure, passed, skipped, warning } from './finding.ts'

const RESTORE =
  'stop the server, move the file away, and restore the newest snapshot: outpost operator snapshot restore -new FILE'

export function checkDatabases({ config, service }: DiagnosisContext): DiagnosisFinding[] {
  const { server } = config
  if (!server.enabled) return [skipped('database', 'an agent has no database')]
  return [
    ...(server.secrets
      ? secretsFindings(server.storagePath)
      : [skipped('database/secrets', 'server { secrets = false }')]),
    rosterFinding(join(config.dataDir, 'server', 'roster.db'), service === undefined),
  ]
}

function secretsFindings(path: string): DiagnosisFinding[] {
  const check = 'database/secrets'
  if (!existsSync(path)) {
    if (!existsSync(`${path}.seen`)) return [skipped(check, `${path} does not exist yet`)]
    const text = `${path} is missing, but this server had one`
    return [
      failure(check, text, 'move the file back, or restore a snapshot: outpost operator snapshot restore -new FILE'),
    ]
  }
  const refusal = readRefusal(path)
  if (refusal) return [refusal]
  const fault = fileFault(check, path)
  if (fault) return [fault]
  const inspected = inspectWith(path, true)
  // A process that opened it meanwhile changes pages that were read.
  const isRunning = isDatabaseLocked(path)
  const { clusterId, findings, position, role } = isRunning ? inspectWith(path, false) : inspected
  if (findings.length > 0) return findings.map((text) => failure(check, text, RESTORE))
  const state = `cluster ${clusterId}, epoch ${position?.epoch}, sequence ${position?.sequence}, role ${role}`
  const how = isRunning ? 'in use, read without a check of its pages' : 'all pages checked'
  return [passed(check, `${path} (${humanBytes(statSync(path).size)}): ${how}; ${state}`)]
}

/** All pages if no process has the database open. */
export function inspectWith(path: string, isDeep: boolean): DatabaseFacts {
  const isStopped = !isDatabaseLocked(path)
  return inspectDatabase(path, { entryPath: CONFIG_PATH, isStopped, isDeep: isDeep && isStopped })
}

/** SQLite creates files beside the database. Only the owner can do that, or root, for whom SQLite sets their owner. */
export function readRefusal(path: string): DiagnosisFinding | undefined {
  const [userId, ownerId] = [process.geteuid?.() ?? 0, statSync(path).uid]
  if (userId === 0 || userId === ownerId) return undefined
  return warning(
    'database/secrets',
    `${path} belongs to another user and was not checked`,
    'run as root or as its owner',
  )
}

/** SQLite would wait for the writer of a pipe. The lock is checked by opening it, too. */
export function fileFault(check: string, path: string): DiagnosisFinding | undefined {
  for (const suffix of ['', '.lock', '-wal', '-shm', '-journal']) {
    const stats = statSync(path + suffix, { throwIfNoEntry: false })
    if (stats && !stats.isFile()) return failure(check, `${path}${suffix} is not a regular file`, 'move it away')
  }
  return undefined
}

/** Servers rebuild it from what nodes report. */
function rosterFinding(path: string, isStopped: boolean): DiagnosisFinding {
  const check = 'database/roster'
  if (!existsSync(path)) return skipped(check, `${path} does not exist yet`)
  if (readRefusal(path)) return warning(check, `${path} belongs to another user and was not checked`, 'run as root')
  const fault = fileFault('database/roster', path)
  if (fault) return fault
  const findings = checkPages(path, isStopped)
  if (findings.length === 0) return passed(check, `${path}: all pages checked`)
  const next = 'stop the server and move the file away: nodes report again, the owner keys of allocations are lost'
  return failure(check, `${path}: ${findings.join('; ')}`, next)
}
