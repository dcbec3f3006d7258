/** `outpost cloud creds`, `outpost cloud role check` and `outpost cloud root rotate`. */
import { AgentRefusal } from '../client/http-client.ts'
import {
  sendRequest,
  cleanPath,
  type CoreAccess,
  type CoreResponse,
  coreOf,
  coreOptions,
  type CoreRequest,
  requireResponse,
} from '../core/core-access.ts'
import { confirm, confirmOptions } from '../core/confirmation.ts'
import { cell, formatOf, formatOption, printSecret, printWarnings } from '../core/secret-output.ts'
import { CommandError, type CommandIo, defineCommand } from '../framework/define-command.ts'
import { choice, text } from '../framework/options.ts'
import { readSecret } from '../input/secret-input.ts'
import { cloudMountOption } from './cloud/cloud-mount-option.ts'
import { credentialsOf, envLines, processJson, profileText } from './cloud/credential-formats.ts'

const MFA_CODE = { what: 'code of the MFA device', prompt: 'Code of the MFA device (will be hidden): ' }

const creds = defineCommand({
  name: 'cloud creds',
  summary: 'Generate AWS credentials from a role',
  details: [
    'Formats besides table, json and yaml:',
    '',
    '  env                 environment variables, one per line, for a .env file or "export $(...)"',
    '  credential_process  JSON for the AWS CLI and SDKs, which repeat the call before expiry',
    '  aws-profile         a profile for ~/.aws/credentials',
    '',
    'A role of type iam_user creates an IAM user for each call and deletes it when the lease expires. For',
    'credential_process, use a role that issues STS sessions, such as assumed_role. Nothing is stored on this machine.',
    '',
    'Examples:',
    '  outpost cloud creds -format env deploy > .env',
    '  credential_process = outpost cloud creds -format credential_process deploy',
  ].join('\n'),
  options: {
    format: choice({
      placeholder: 'FORMAT',
      help: 'Output format',
      choices: ['table', 'json', 'yaml', 'env', 'credential_process', 'aws-profile'],
    }),
    ttl: text({ placeholder: 'DURATION', help: 'TTL of the session; not for iam_user', fallback: undefined }),
    'role-arn': text({ placeholder: 'ARN', help: 'ARN of the role to assume', fallback: undefined }),
    'session-name': text({ placeholder: 'NAME', help: 'Session name', fallback: undefined }),
    'mfa-code': text({
      placeholder: 'CODE',
      help: 'Code of the MFA device; - prompts for it',
      fallback: undefined,
    }),
    profile: text({
      placeholder: 'NAME',
      help: 'Profile name for aws-profile',
      fallback: undefined,
      shownDefault: 'the role name',
      check: (name) => (/^[\w.@:/+-]+$/.test(name) ? undefined : 'may contain letters, digits and . _ @ : / + - only'),
    }),
    ...cloudMountOption,
    ...coreOptions,
  },
  operands: { shown: 'ROLE', min: 1, max: 1, hint: '"outpost list cloud/roles" lists the names' },
  async run(values, [role = ''], io) {
    const core = coreOf(values, io)
    if (values.ttl !== undefined) await requireSessions(core, values.mount, role)
    const request = await requestOf(values, role, io)
    // Before the request, so that the printed expiration is never too late.
    const nowMs = Date.now()
    const answer = await requireResponse(core, request)
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

/** Throws CommandError for a role with iam_user, whose TTL is that of the lease. A role that may not be read is not checked. */
async function requireSessions(core: CoreAccess, mount: string, role: string): Promise<void> {
  const path = cleanPath(`${mount}/roles/${role}`)
  const answer = await sendRequest(core, { path }).catch((error: unknown) => {
    if (error instanceof AgentRefusal) return undefined
    throw error
  })
  if (answer?.fields.under('data').text('credential_type') !== 'iam_user') return
  throw new CommandError(
    `option -ttl has no effect on role ${role}: it creates IAM users with the TTL of the mount (change it with "outpost secrets tune -default-lease-ttl")`,
  )
}

interface CredentialOptions {
  readonly mount: string
  readonly ttl: string | undefined
  readonly 'role-arn': string | undefined
  readonly 'session-name': string | undefined
  readonly 'mfa-code': string | undefined
}

/** A read, as policies permit it; with a code an update, because a body does not appear in logs. */
async function requestOf(values: CredentialOptions, role: string, io: CommandIo): Promise<CoreRequest> {
  const path = cleanPath(`${values.mount}/creds/${role}`)
  const parameters = { ttl: values.ttl, role_arn: values['role-arn'], role_session_name: values['session-name'] }
  if (values['mfa-code'] === undefined) return { path, query: parameters }
  const code = await readSecret(values['mfa-code'], MFA_CODE, io)
  return { method: 'PUT', path, body: { ...parameters, mfa_code: code } }
}

function formatted(
  format: 'env' | 'credential_process' | 'aws-profile',
  { fields }: CoreResponse,
  { nowMs, path, profile }: { readonly path: string; readonly profile: string; readonly nowMs: number },
): string {
  const credentials = credentialsOf(fields, path, nowMs)
  if (format === 'env') return envLines(credentials)
  return format === 'aws-profile' ? profileText(credentials, profile) : processJson(credentials)
}

const FAILED = 1

const roleCheck = defineCommand({
  name: 'cloud role check',
  summary: 'Check whether a role can issue AWS credentials',
  details: [
    'Prints the result of each check: ok, failed, or unknown if the permission to check is missing. Issues no credentials.',
    'Exit code 1: a check failed.',
  ].join('\n'),
  options: { ...cloudMountOption, ...formatOption, ...coreOptions },
  operands: { shown: 'ROLE', min: 1, max: 1, hint: '"outpost list cloud/roles" lists the names' },
  async run(values, [role = ''], io) {
    const path = cleanPath(`${values.mount}/roles/${role}/check`)
    const answer = await requireResponse(coreOf(values, io), { path })
    const data = answer.fields.under('data')
    if (formatOf(values, io) === 'table') {
      const findings = data.value('findings')
      for (const line of Array.isArray(findings) ? findings : []) io.out(`${cell(line)}\n`)
    } else printSecret(answer, values, io)
    return data.text('result') === 'failed' ? FAILED : 0
  },
})

const rootRotate = defineCommand({
  name: 'cloud root rotate',
  summary: 'Rotate the root access key of the engine',
  details: [
    'Creates a new access key for the IAM user of the engine, stores it, and deletes the old key. The secret key',
    'is not printed. The old key must be the only access key of its IAM user, and nothing else may use it. Asks for',
    'confirmation on a terminal.',
  ].join('\n'),
  options: { ...cloudMountOption, ...confirmOptions, ...formatOption, ...coreOptions },
  async run(values, _operands, io) {
    const core = coreOf(values, io)
    const path = cleanPath(`${values.mount}/config/rotate-root`)
    await confirm(core, `replace the root access key of ${values.mount} and delete the old key`, values.yes, io)
    printSecret(await requireResponse(core, { method: 'POST', path }), values, io)
    return 0
  },
})

export const commands = [creds, roleCheck, rootRotate]
