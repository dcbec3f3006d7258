/** `outpost secrets list` and `outpost auth list`. */
import { type Answer, fieldsOf } from '../../output/answer.ts'
import { type Command, defineCommand } from '../../framework/command-shape.ts'
import { flag } from '../../framework/options.ts'
import { coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { cell, formatOf, formatOption, printAs, ttlText, wideTable } from '../../core/secret-output.ts'
import { AUTH, type MountKind, SECRETS } from './mount-kind.ts'

function listing({ list, many, word }: MountKind): Command {
  return defineCommand({
    name: `${word} list`,
    summary: `List the ${many} that are enabled`,
    options: { detailed: flag('With all settings'), ...formatOption, ...coreOptions },
    async run(values, _operands, io) {
      const { body, fields } = await requireCore(coreOf(values, io), { path: list })
      const data = fields.value('data') ?? body
      const mounts = isJsonObject(data) ? data : {}
      printAs(formatOf(values, io), mounts, io, () => (values.detailed ? details(mounts) : overview(mounts)))
      return 0
    },
  })
}

export const secrets = listing(SECRETS)
export const auth = listing(AUTH)

type Mounts = Readonly<Record<string, unknown>>

function rowsOf(mounts: Mounts, row: (mount: Answer) => readonly unknown[]): string[][] {
  const paths = Object.keys(mounts).toSorted()
  return paths.map((path) => [path, ...row(fieldsOf(mounts[path]))].map(cell))
}

function overview(mounts: Mounts): string {
  const rows = rowsOf(mounts, (mount) => [
    mount.text('type'),
    mount.text('accessor'),
    mount.text('description') || 'n/a',
  ])
  return wideTable(['Path', 'Type', 'Accessor', 'Description'], rows)
}

function details(mounts: Mounts): string {
  const rows = rowsOf(mounts, (mount) => {
    const config = mount.under('config')
    const term = (name: string) => (config.number(name) === 0 ? 'system' : ttlText(config.number(name)))
    return [
      mount.text('type'),
      mount.text('accessor'),
      term('default_lease_ttl'),
      term('max_lease_ttl'),
      mount.boolean('local') ? 'local' : 'replicated',
      optionsText(mount),
      mount.text('description') || 'n/a',
      mount.text('uuid'),
    ]
  })
  const header = [
    'Path',
    'Plugin',
    'Accessor',
    'Default TTL',
    'Max TTL',
    'Replication',
    'Options',
    'Description',
    'UUID',
  ]
  return wideTable(header, rows)
}

function optionsText(mount: Answer): string {
  const options = mount.under('options')
  const names = mount.names('options')
  return `map[${names.map((name) => `${name}:${options.text(name)}`).join(' ')}]`
}
