/** Free space, inodes, and the duration of an fsync, for each data directory. */
import { closeSync, fsyncSync, openSync, rmSync, statSync, writeSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import { join } from 'node:path'
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import { humanBytes } from '../../cli/output/table.ts'
import { errnoOf, messageOf } from '../../platform/errors.ts'
import { FREE_BYTES_MIN } from '../../telemetry/disk-space.ts'
import { dataDirectories } from '../monitoring/readiness.ts'
import { type DiagnosisContext, failure, passed, skipped, warning } from './finding.ts'

/** Below this fraction or size, the disk will be full soon. */
const FREE_PART_LOW = 0.1
const FREE_BYTES_LOW = 1 << 30
const FREE_INODES_LOW = 0.05
const SYNCS = 9
/** A commit waits for one sync. Network storage takes some milliseconds, a failing disk seconds. */
const SYNC_SLOW_MS = 100
const SYNC_FAILING_MS = 2000
const BLOCK = Buffer.alloc(4096)

export async function checkDisk({ config }: DiagnosisContext): Promise<DiagnosisFinding[]> {
  const directories = [...Map.groupBy(dataDirectories(config), deviceOf)].flatMap(([, [first]]) => first ?? [])
  const findings: DiagnosisFinding[] = []
  // One after the other: concurrent syncs would delay each other.
  for (const directory of directories) findings.push(...(await findingsOf(directory)))
  return findings
}

/** Groups directories, so that each file system is measured once. A missing directory is its own group. */
function deviceOf(directory: string): string {
  const stats = statSync(directory, { throwIfNoEntry: false })
  return stats ? String(stats.dev) : directory
}

async function findingsOf(directory: string): Promise<DiagnosisFinding[]> {
  try {
    const { bavail, blocks, bsize, ffree, files } = await statfs(directory)
    const [freeBytes, totalBytes] = [bavail * bsize, blocks * bsize]
    const size = `${directory}: ${humanBytes(freeBytes)} of ${humanBytes(totalBytes)} free`
    const next = `free space below ${directory}, or move data_dir to a larger file system`
    const findings: DiagnosisFinding[] = []
    if (freeBytes < FREE_BYTES_MIN) findings.push(failure('disk/space', size, next))
    else if (freeBytes < FREE_BYTES_LOW || freeBytes < totalBytes * FREE_PART_LOW) {
      findings.push(warning('disk/space', size, next))
    } else findings.push(passed('disk/space', size))
    // File systems without a fixed number of inodes report none.
    if (files > 0 && ffree < files * FREE_INODES_LOW) {
      findings.push(warning('disk/inodes', `${directory}: ${ffree} of ${files} inodes free`, 'remove small files'))
    }
    return [...findings, syncFinding(directory)]
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [skipped('disk', `${directory} does not exist yet`)]
    return [failure('disk', `${directory}: ${messageOf(error)}`, 'correct data_dir, or mount the file system')]
  }
}

/** The median of several writes of one block, each with its fsync. */
function syncFinding(directory: string): DiagnosisFinding {
  const file = join(directory, `.diagnose-${process.pid}`)
  let fd: number | undefined
  try {
    fd = openSync(file, 'wx', 0o600)
    const durations: number[] = []
    for (let at = 0; at < SYNCS; at++) {
      const startedAtMs = performance.now()
      writeSync(fd, BLOCK, 0, BLOCK.length, 0)
      fsyncSync(fd)
      durations.push(performance.now() - startedAtMs)
    }
    const medianMs = durations.sort((a, b) => a - b)[Math.floor(SYNCS / 2)] ?? 0
    const text = `${directory}: fsync takes ${medianMs.toFixed(1)} ms (median of ${SYNCS})`
    const next = 'use a local SSD, and check the disk: dmesg, smartctl'
    if (medianMs >= SYNC_FAILING_MS) return failure('disk/fsync', text, next)
    return medianMs >= SYNC_SLOW_MS ? warning('disk/fsync', text, next) : passed('disk/fsync', text)
  } catch (error) {
    if (errnoOf(error) === 'EACCES')
      return skipped('disk/fsync', `${directory} is not writable by this user: run as root`)
    const next = 'mount the file system writable, or free space'
    return failure('disk/fsync', `${directory} cannot be written: ${messageOf(error)}`, next)
  } finally {
    if (fd !== undefined) {
      closeSync(fd)
      rmSync(file, { force: true })
    }
  }
}
