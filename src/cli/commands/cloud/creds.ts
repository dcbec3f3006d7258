/** `outpost cloud creds`. */
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { choice, text } from '../../framework/options.ts'
import {
  askCore,
  cleanPath,
  type CoreAccess,
  type CoreAnswer,
  coreOf,
  coreOptions,
  type CoreRequest,
  requireCore,
} from '../../core/core-access.ts'
import { printSecret, printWarnings } from '../../core/secret-output.ts'
import { typedSecret } from '../../input/typed-secret.ts'
import { credentialsOf, envLines, processJson, profileText } from './credential-formats.ts'
import { cloudMountOption } from './role-check.ts'

const MFA_CODE = { what: 'the code of the MFA device', prompt: 'Code of the MFA device (will be hidden): ' }

export const command = defineCommand({
  name: 'cloud creds',
  summary: 'Get credentials of AWS by a role, in the form in which programs take them',
  details: [
    '  env                 variables, one a line, for a .env file or "export $(…)"',
    '  credential_process  JSON for the setting of that name: the program asks again before they end',
    '  aws-profile         a profile for ~/.aws/credentials',
    '',
    'Users of IAM (iam_user) are made by each call and removed when their lease ends: for',
    'credential_process take a role that is assumed. Nothing is kept on this machine.',
    '',
    'Examples:',
    '  outpost cloud creds -format env deploy > .env',
    '  credential_process = outpost cloud creds -format credential_process deploy',
  ].join('\n'),
  options: {
    format: choice({
      placeholder: 'FORMAT',
      help: 'How to print them',
      choices: ['table', 'json', 'yaml', 'env', 'credential_process', 'aws-profile'],
    }),
    ttl: text({ placeholder: 'DURATION', help: 'How long a session lasts; not for users of IAM', fallback: undefined }),
    'role-arn': text({ placeholder: 'ARN', help: 'The role to assume, where there are several', fallback: undefined }),
    'session-name': text({ placeholder: 'NAME', help: 'Name of the session', fallback: undefined }),
    'mfa-code': text({
      placeholder: 'CODE',
      help: "A code of the role's MFA device; - asks for it, or reads it from standard input",
      fallback: undefined,
    }),
    profile: text({
      placeholder: 'NAME',
      help: 'Name of the profile, for aws-profile',
      fallback: undefined,
      shownDefault: 'the name of the role',
      check: (name) => (/^[\w.@:/+-]+$/.test(name) ? undefined : 'has letters, digits and . _ @ : / + - only'),
    }),
    ...cloudMountOption,
    ...coreOptions,
  },
  operands: { shown: 'ROLE', min: 1, max: 1, missing: 'by which role? "outpost list cloud/roles" shows them' },
  async run(values, [role = ''], io) {
    const core = coreOf(values, io)
    if (values.ttl !== undefined) await requireSessions(core, values.mount, role)
    const request = await requestOf(values, role, io)
    // Before the request, so that the end that is told is never too late.
    const nowMs = Date.now()
    const answer = await requireCore(core, request)
    const { format } = values
    if (format === undefined || format === 'table' || format === 'json' || format === 'yaml') {
      printSecret(answer, { format }, io)
      return 0
    }
    const leaseId = answer.fields.text('lease_id')
    if (leaseId !== '') io.err(`Lease ID: ${leaseId}\n`)
    io.out(formatted(format, answer, { path: request.path, profile: values.profile ?? role, nowMs }))
    printWarnings(answer, io)
    return 0
  },
})

/** Users of IAM have the TTL of their lease only. Throws CommandError; a role that may not be read is left to the server. */
async function requireSessions(core: CoreAccess, mount: string, role: string): Promise<void> {
  const path = cleanPath(`${mount}/roles/${role}`)
  const answer = await askCore(core, { path }).catch((error: unknown) => {
    if (error instanceof RefusedByAgent) return undefined
    throw error
  })
  if (answer?.fields.under('data').text('credential_type') !== 'iam_user') return
  throw new CommandError(
    `-ttl has no effect on the role ${role}: it creates users of IAM, whose lease has the TTL of the mount ("outpost secrets tune -default-lease-ttl" changes it)`,
  )
}

interface Values {
  readonly mount: string
  readonly ttl: string | undefined
  readonly 'role-arn': string | undefined
  readonly 'session-name': string | undefined
  readonly 'mfa-code': string | undefined
}

/** A read where that will do, as policies allow it; a code goes in a body, which no log shows. */
async function requestOf(values: Values, role: string, io: CommandIo): Promise<CoreRequest> {
  const path = cleanPath(`${values.mount}/creds/${role}`)
  const wishes = { ttl: values.ttl, role_arn: values['role-arn'], role_session_name: values['session-name'] }
  if (values['mfa-code'] === undefined) return { path, query: wishes }
  const code = await typedSecret(values['mfa-code'], MFA_CODE, io)
  return { method: 'PUT', path, body: { ...wishes, mfa_code: code } }
}

function formatted(
  format: 'env' | 'credential_process' | 'aws-profile',
  { fields }: CoreAnswer,
  { nowMs, path, profile }: { readonly path: string; readonly profile: string; readonly nowMs: number },
): string {
  const credentials = credentialsOf(fields, path, nowMs)
  if (format === 'env') return envLines(credentials)
  return format === 'aws-profile' ? profileText(credentials, profile) : processJson(credentials)
}
