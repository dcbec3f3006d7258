/** `outpost operator unseal`: key shares, one after the other, until the core is open. */
import { type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { flag } from '../../framework/options.ts'
import { type CoreAccess, type CoreAnswer, coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { formatOf, formatOption, pairsTable, printAs } from '../../core/secret-output.ts'
import { typedSecrets } from '../../input/typed-secret.ts'

const WANTED = { what: 'a key share', prompt: 'Unseal Key (will be hidden): ' }

export const command = defineCommand({
  name: 'operator unseal',
  summary: 'Give a key share to open the secrets',
  details: [
    'Asks for the share on the terminal and does not show it. With - it is read from standard input,',
    'also several of them, one a line. As an argument other users of the machine can see it while it',
    'runs. A server with a static seal opens with the key of its machine, and takes no shares.',
    '',
    'Example: outpost operator unseal - < /run/keys/share-1',
  ].join('\n'),
  options: {
    reset: flag('Forget the shares that were given so far'),
    migrate: flag("Change over to the seal of the server's configuration"),
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: '[KEY|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io) {
    const core = coreOf(values, io)
    const format = formatOf(values, io)
    const answer = values.reset
      ? await give(core, { reset: true })
      : await giveAll(core, await typedSecrets(given, WANTED, io), values.migrate)
    printAs(format, answer.body, io, () => progressTable(answer))
    hint(answer, io)
    return 0
  },
})

async function giveAll(core: CoreAccess, keys: readonly [string, ...string[]], migrate: boolean): Promise<CoreAnswer> {
  const [first, ...more] = keys
  let answer = await give(core, { key: first, migrate })
  for (const key of more) {
    if (!answer.fields.boolean('sealed')) break
    answer = await give(core, { key, migrate })
  }
  return answer
}

function give(core: CoreAccess, body: Readonly<Record<string, unknown>>): Promise<CoreAnswer> {
  return requireCore(core, { method: 'PUT', path: 'sys/unseal', body })
}

function progressTable({ fields }: CoreAnswer): string {
  const isSealed = fields.boolean('sealed')
  return pairsTable([
    ['Seal Type', fields.value('type')],
    ['Sealed', isSealed],
    ['Total Shares', fields.number('n')],
    ['Threshold', fields.number('t')],
    ...(isSealed
      ? ([
          ['Unseal Progress', `${fields.number('progress')}/${fields.number('t')}`],
          ['Unseal Nonce', fields.text('nonce')],
        ] as const)
      : ([['Cluster Name', fields.value('cluster_name')]] as const)),
  ])
}

function hint({ fields }: CoreAnswer, io: CommandIo): void {
  const left = fields.number('t') - fields.number('progress')
  if (fields.boolean('sealed')) io.err(`still sealed: ${left} more key ${left === 1 ? 'share' : 'shares'}\n`)
}
