/** How a secret that was just generated is shown: on a terminal with its QR code, elsewhere without a picture. */
import { qrText } from '../../../engines/totp/qr.ts'
import { CommandError, type CommandIo } from '../../framework/command-shape.ts'
import type { CoreAnswer } from '../../core/core-access.ts'
import { isJsonObject } from '../../output/exact-json.ts'
import { type Format, formatOf, pairsTable, printSecret, printWarnings } from '../../core/secret-output.ts'

interface Values {
  readonly format: Format | undefined
  readonly field: string | undefined
  readonly 'no-qr': boolean
}

interface Enrolled {
  readonly method: string
  /** The entity, where an administrator asks: who may also replace a secret that is there. */
  readonly entity?: string
}

/** Resolves with the exit code. Throws CommandError where the entity has a secret already. */
export async function printEnrolment(
  answer: CoreAnswer,
  { entity, method }: Enrolled,
  values: Values,
  io: CommandIo,
): Promise<number> {
  const { fields } = answer
  const data = fields.value('data')
  if (!isJsonObject(data)) {
    printWarnings(answer, io)
    const next =
      entity !== undefined ? '"outpost mfa totp replace" gives it another one' : 'an administrator can replace it'
    throw new CommandError(`no secret was generated for ${method}: there is one, ${next}`)
  }
  if (values.field !== undefined || formatOf(values, io) !== 'table') {
    printSecret(answer, values, io)
    return 0
  }
  const url = fields.under('data').text('url')
  if (!values['no-qr'] && process.getBuiltinModule('node:tty').isatty(1)) io.out(await qrText(url))
  const { barcode: _picture, recovery_codes: recovery, ...shown } = data
  const codes = Array.isArray(recovery) ? recovery : []
  const rows = Object.entries(shown).toSorted(([a], [b]) => (a < b ? -1 : 1))
  io.out(pairsTable([...rows, ...codes.map((code, at) => [`recovery_code_${at + 1}`, code] as const)]))
  printWarnings(answer, io)
  io.err('This is shown once. Scan the code, or type the secret into an authenticator application.\n')
  if (data['confirmed'] === false) {
    const command = entity === undefined ? `confirm ${method}` : `admin-confirm ${method} ${entity}`
    io.err(`It is in force once its first code was given: outpost mfa totp ${command}\n`)
  }
  return 0
}
