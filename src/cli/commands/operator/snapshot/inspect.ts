/** `outpost operator snapshot inspect`. */
import { createReadStream } from 'node:fs'
import { messageOf, Refusal } from '../../../../platform/errors.ts'
import { formatOf, formatOption, pairsTable, printAs } from '../../../core/secret-output.ts'
import { CommandError, defineCommand } from '../../../framework/define-command.ts'
import { UsageError } from '../../../framework/options.ts'
import { humanBytes } from '../../../output/table.ts'

export const command = defineCommand({
  name: 'operator snapshot inspect',
  summary: 'Show the metadata of a snapshot and verify it',
  details: [
    'Reads the whole file and verifies its checksums. Requires no server, token or keys: the entries stay',
    'encrypted. Exit code 1: the file is damaged, incomplete or not a snapshot.',
    '',
    'The sequence and the epoch are the position in the log of the cluster: of two snapshots of one cluster, the',
    'one with the higher epoch, then sequence, is newer.',
  ].join('\n'),
  options: { ...formatOption },
  operands: { shown: 'FILE|-', min: 1, max: 1 },
  async run(values, [file = ''], io) {
    const format = formatOf(values, io)
    if (file === '-' && process.getBuiltinModule('node:tty').isatty(0)) {
      throw new UsageError('cannot read a snapshot from a terminal: specify a file')
    }
    const { inspectSnapshot } = await import('../../../../storage/snapshot/inspect.ts')
    const input = file === '-' ? process.stdin : createReadStream(file, { highWaterMark: 512 * 1024 })
    const { meta, sha256 } = await inspectSnapshot(input).catch((error: unknown) => {
      const where = error instanceof Refusal ? file : `cannot read ${file}`
      throw new CommandError(`${where}: ${messageOf(error)}`, 1, { cause: error })
    })
    const shown = {
      outpost_version: meta.programVersion ?? null,
      format: meta.format,
      cluster_id: meta.clusterId,
      taken_at: new Date(meta.takenAtMs).toISOString(),
      epoch: meta.epoch,
      sequence: meta.sequence,
      entries: meta.entries,
      bytes: meta.bytes,
      log_checksum: meta.checksum,
      sha256,
      verified: true,
    }
    printAs(format, shown, io, () =>
      pairsTable([
        ['Outpost Version', shown.outpost_version ?? 'unknown'],
        ['Format', shown.format],
        ['Cluster ID', shown.cluster_id],
        ['Taken At', shown.taken_at],
        ['Epoch', shown.epoch],
        ['Sequence', shown.sequence],
        ['Entries', shown.entries],
        ['Size', humanBytes(shown.bytes)],
        ['Log Checksum', shown.log_checksum],
        ['SHA-256 of Entries', `${shown.sha256} (verified)`],
      ]),
    )
    return 0
  },
})
