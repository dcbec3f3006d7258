/** `outpost operator dr promote` and `failover`: a secondary takes over. */
import { randomInt } from 'node:crypto'
import { CommandError, type CommandIo, defineCommand } from '../command-shape.ts'
import { flag, text } from '../options.ts'
import { askCore, type CoreAccess, coreOf, coreOptions, requireCore } from '../secrets/core-access.ts'
import { typedSecret, typedSecrets } from '../secrets/typed-secret.ts'
import { change, DR, drStatus, GENERATION, requireSecondary } from './dr-access.ts'
import type { Answer } from '../answer.ts'

const SIGNS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

const options = {
  force: flag('Also where something may be missing that the primary had'),
  'primary-cluster-addr': text({
    placeholder: 'ADDR',
    help: 'Where secondaries connect to, host:port, where the server does not know it itself',
    fallback: '',
  }),
  ...coreOptions,
}

export const command = defineCommand({
  name: 'operator dr promote',
  summary: 'Make this DR secondary the primary',
  details: [
    'It takes an operation token ("outpost operator generate-root -dr-token"), or a batch token of the',
    'primary whose policy grants it.',
  ].join('\n'),
  options,
  operands: { shown: 'TOKEN|-', min: 1, max: 1, missing: 'give an operation token, or - to read it' },
  async run(values, [given], io) {
    const token = await typedSecret(given, { what: 'an operation token', prompt: 'Operation token: ' }, io)
    await promote(coreOf(values, io), token, values, io)
    return 0
  },
})

export const failover = defineCommand({
  name: 'operator dr failover',
  summary: 'Walk through a failover to this DR secondary, with checks between the steps',
  details: [
    'Looks at the secondary, says what may be missing, makes an operation token from key shares of the',
    'primary, promotes, and looks at what serves then. Nothing has changed before the last share is',
    'given. The primary must be down, or cut off from its callers: it is told, and takes no more writes.',
    '',
    'Example: outpost operator dr failover -        key shares, each in a line of standard input',
  ].join('\n'),
  options,
  operands: { shown: '[SHARE|-]', min: 0, max: 1, missing: '' },
  async run(values, [given], io) {
    const core = coreOf(values, io)
    const { fields } = await drStatus(core)
    requireSecondary(fields, core)
    io.err(`1. ${core.target.url.origin} is a DR secondary: ${standing(fields)}\n`)
    const token = await operationToken(core, given, io)
    io.err('2. An operation token was made from key shares\n')
    const beganAtMs = performance.now()
    await promote(core, token, values, io)
    await requireCore(core, { path: 'sys/health' })
    io.err(`3. It serves as the primary, ${Math.round(performance.now() - beganAtMs)} ms after the promotion began\n`)
    io.err('4. Next: move callers to it. When the old primary is back: "outpost operator dr demote" there, then\n')
    io.err('   "outpost operator dr token" here and secondary/update-primary there; revoke what was issued before\n')
    return 0
  },
})

interface Wanted {
  readonly force: boolean
  readonly 'primary-cluster-addr': string
}

async function promote(core: CoreAccess, token: string, values: Wanted, io: CommandIo): Promise<void> {
  const { force, 'primary-cluster-addr': address } = values
  const body = { dr_operation_token: token, force, primary_cluster_addr: address }
  await change(core, 'secondary/promote', body, 'This cluster is the DR primary.', io)
}

function standing(fields: Answer): string {
  const lag = fields.value('lag_entries')
  const behind = typeof lag === 'number' ? `${lag} entries behind what the primary was last heard to have` : ''
  const state =
    fields.text('state') === 'stream-wals' ? 'it follows its primary, which is there' : 'its primary is not heard'
  return [state, behind].filter((part) => part !== '').join(', ')
}

/** Made of shares that are typed, or come on standard input. It ends the attempt when it cannot be finished. */
async function operationToken(core: CoreAccess, given: string | undefined, io: CommandIo): Promise<string> {
  const attempt = { path: `${GENERATION}/attempt` }
  const { fields: idle } = await requireCore(core, attempt)
  const otp = Array.from({ length: idle.number('otp_length') }, () => SIGNS.charAt(randomInt(SIGNS.length))).join('')
  const { fields } = await requireCore(core, { ...attempt, method: 'PUT', body: { otp } })
  const [nonce, required] = [fields.text('nonce'), fields.number('required')]
  let encoded = ''
  try {
    encoded = await gathered(core, { given, nonce, required }, io)
  } finally {
    if (encoded === '') await askCore(core, { ...attempt, method: 'DELETE' }).catch(() => undefined)
  }
  const bytes = Buffer.from(encoded, 'base64')
  const key = Buffer.from(otp)
  return Buffer.from(bytes.map((byte, at) => byte ^ (key[at] ?? 0))).toString('latin1')
}

interface Gathering {
  readonly given: string | undefined
  readonly nonce: string
  readonly required: number
}

async function gathered(core: CoreAccess, { given, nonce, required }: Gathering, io: CommandIo): Promise<string> {
  let shares: readonly string[] = []
  for (let at = 1; at <= required; at++) {
    const prompt = `Key share ${at} of ${required} (will be hidden): `
    if (shares.length === 0) shares = await typedSecrets(given, { what: 'a key share', prompt }, io)
    const [key, ...rest] = shares
    shares = rest
    const answer = await requireCore(core, { method: 'PUT', path: `${GENERATION}/update`, body: { key, nonce } })
    if (answer.fields.boolean('complete')) return answer.fields.text('encoded_token')
    if (shares.length === 0 && given !== undefined && at < required) {
      throw new CommandError(
        `${required} key shares are needed, ${at} came: the attempt was ended, nothing has changed`,
      )
    }
  }
  throw new CommandError(`the key shares made no token: see ${DR}/status`)
}
