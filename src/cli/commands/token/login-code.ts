/** The second step of a login that needs a code: asks for it, and sends it. */
import { type Answer, fieldsOf } from '../../output/answer.ts'
import { CommandError, type CommandIo } from '../../framework/command-shape.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { type CoreAccess, type CoreAnswer, requireCore } from '../../core/core-access.ts'
import { typedSecret } from '../../input/typed-secret.ts'

const TRIES_MAX = 3
const FORBIDDEN = 403

interface Choice {
  readonly id: string
  readonly name: string
}

/** What a login was answered with, where it got no token yet. */
export function needsCode({ fields }: CoreAnswer): boolean {
  return fields.under('auth').under('mfa_requirement').text('mfa_request_id') !== ''
}

/**
 * Asks for a code of each enforcement and sends them; on a terminal again where they were not right. Resolves with the
 * answer that has the token. Throws CommandError.
 */
export async function finishedLogin(core: CoreAccess, begun: CoreAnswer, io: CommandIo): Promise<CoreAnswer> {
  const requirement = begun.fields.under('auth').under('mfa_requirement')
  const enforcements = requirement
    .names('mfa_constraints')
    .map((name) => choicesOf(requirement.under('mfa_constraints').under(name)))
  if (!process.getBuiltinModule('node:tty').isatty(0)) throw notTyped(enforcements)
  for (let attempt = 1; ; attempt++) {
    const payload: Record<string, string[]> = {}
    for (const choices of enforcements) await askCode(choices, payload, io)
    const body = { mfa_request_id: requirement.text('mfa_request_id'), mfa_payload: payload }
    try {
      return await requireCore(core, { method: 'PUT', path: 'sys/mfa/validate', body })
    } catch (error) {
      const isWrong = error instanceof RefusedByAgent && error.status === FORBIDDEN
      if (!isWrong || attempt >= TRIES_MAX) throw error
      io.err('the code was not accepted: a code is good once, wait for the next one\n')
    }
  }
}

function choicesOf(constraint: Answer): Choice[] {
  const any = constraint.value('any')
  if (!Array.isArray(any)) return []
  return any.map((each) => {
    const fields = fieldsOf(each)
    return { id: fields.text('id'), name: fields.text('name') || fields.text('id') }
  })
}

function namesOf(choices: readonly Choice[]): string {
  return choices.map(({ name }) => name).join(', ')
}

function notTyped(enforcements: readonly Choice[][]): CommandError {
  const [methods = []] = enforcements
  return new CommandError(
    `the login needs a code of ${namesOf(methods)}: give it as -mfa METHOD:CODE (or OUTPOST_MFA), or log in on a terminal`,
  )
}

/** Adds a code of one of the methods, unless one of them was asked for already. */
async function askCode(choices: readonly Choice[], payload: Record<string, string[]>, io: CommandIo): Promise<void> {
  const [only] = choices
  if (!only) throw new CommandError('the login needs a code of a method that is not there any more')
  if (choices.some(({ id }) => id in payload)) return
  const what = { what: 'the code' }
  if (choices.length === 1) {
    payload[only.id] = [
      await typedSecret(undefined, { ...what, prompt: `Code of ${only.name} (will be hidden): ` }, io),
    ]
    return
  }
  const prompt = `Code of one of ${namesOf(choices)}, as METHOD:CODE (will be hidden): `
  const typed = await typedSecret(undefined, { ...what, prompt }, io)
  const colon = typed.indexOf(':')
  const wanted = typed.slice(0, Math.max(colon, 0))
  const chosen = choices.find(({ id, name }) => name === wanted || id === wanted)
  if (!chosen) throw new CommandError(`that is no METHOD:CODE of ${namesOf(choices)}`)
  payload[chosen.id] = [typed.slice(colon + 1)]
}
