/**
 * `roles/:name/check`: checks whether a role can issue credentials, without a persistent effect in AWS. Users are not created.
 * Sessions of STS are created, as this is the only way to check them; they are discarded and expire.
 */
import { path, type Path, Rejection } from '../../framework/engine.ts'
import { inPath } from '../../framework/fields.ts'
import type { StsClient } from '../aws/aws.ts'
import { checkName } from '../aws/entries.ts'
import { DOCUMENT_LENGTH_MAX, documentFault } from '../aws/policy-document.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { type CredentialType, type CloudRole, roles } from '../mount/role-record.ts'
import { assumeRequest, federationRequest, sessionPolicyOf, namesOf, sessionRequest } from '../sessions/sessions.ts'
import { usernameOf } from '../templates/username.ts'
import { failureFinding, type Finding, findingText, outcomeOf, DryRun } from './dry-run.ts'
import { permissionFindings } from './iam-permission-check.ts'

/** Concurrent checks of role ARNs, because AWS throttles an account. */
const CONCURRENT_CHECKS = 4

/** Rejects for a fault of the server, and with a Rejection (503) once the caller has disconnected. */
async function roleFindings(role: CloudRole, run: DryRun): Promise<Finding[]> {
  const documents = documentFindings(role)
  if (role.types.length === 0) {
    return [{ outcome: 'failed', what: 'role', why: 'its data is invalid: write the role again' }]
  }
  const { arn, finding } = await rootFinding(run)
  if (arn === undefined) return [finding, ...documents]
  const findings = [finding, ...documents, ...(await managedFindings(role, run))]
  for (const type of role.types) findings.push(...(await ROLE_CHECKS[type](role, run, arn)))
  return findings
}

/** The identity of the root credentials. GetCallerIdentity needs no permission, so a failure is one of the credentials. */
async function rootFinding(run: DryRun): Promise<{ readonly finding: Finding; readonly arn?: string }> {
  const { call } = run
  const { signal } = call
  const what = 'root credentials'
  try {
    const { Arn: arn = '' } = await CloudMount.of(call).aws.sts(
      (client) => client.call((sts, options) => sts.getCallerIdentity({}, options), { signal }),
      signal,
    )
    return { finding: { outcome: 'ok', what, why: arn }, arn }
  } catch (error) {
    run.checkCaller()
    return { finding: failureFinding(what, error) }
  }
}

function documentFindings({ policyDocument }: CloudRole): Finding[] {
  if (policyDocument === '') return []
  const what = 'policy_document'
  const fault = documentFault(policyDocument)
  if (fault !== undefined) return [{ outcome: 'failed', what, why: fault }]
  return [{ outcome: 'ok', what, why: `${policyDocument.length} of ${DOCUMENT_LENGTH_MAX} characters` }]
}

/** Whether managed policies and, for users, groups exist. */
async function managedFindings(role: CloudRole, run: DryRun): Promise<Finding[]> {
  const { call } = run
  const { signal } = call
  const { iam } = CloudMount.of(call).aws
  const { iamGroups, permissionsBoundaryArn: boundary, policyArns, types } = role
  const arns = [...(policyArns ?? []), ...(boundary === '' ? [] : [boundary])]
  const groups = types.includes('iam_user') ? (iamGroups ?? []) : []
  const findings: Finding[] = []
  for (const PolicyArn of arns) {
    const check = () => iam.call((client, options) => client.getPolicy({ PolicyArn }, options), { signal })
    findings.push(withoutPermission(await run.finding(`policy ${PolicyArn}`, check)))
  }
  for (const GroupName of groups) {
    const check = () => iam.call((client, options) => client.getGroup({ GroupName, MaxItems: 1 }, options), { signal })
    findings.push(withoutPermission(await run.finding(`group ${GroupName}`, check)))
  }
  return findings
}

/** A missing permission for the check is not a fault of the role, because it is not needed to issue credentials. */
function withoutPermission(finding: Finding): Finding {
  const { missing, ...rest } = finding
  if (missing === undefined) return finding
  return { ...rest, outcome: 'unknown', why: `cannot be checked: allow ${missing}` }
}

type RoleCheck = (role: CloudRole, run: DryRun, arn: string) => Promise<Finding[]>

const ROLE_CHECKS: Readonly<Record<CredentialType, RoleCheck>> = {
  async iam_user(role, run, arn) {
    const { call } = run
    const { aws } = CloudMount.of(call)
    const nameOf = async () => usernameOf(aws.config.usernameTemplate, 'IAM', namesOf(role, call))
    const name = await run.finding('username_template', nameOf)
    if (name.outcome !== 'ok') return [name]
    const findings = await permissionFindings(aws.iam, { role, arn, username: await nameOf() }, call.signal)
    run.checkCaller()
    return findings
  },
  assumed_role: assumedFindings,
  async federation_token(role, run) {
    const { call } = run
    const { signal } = call
    const finding = await run.finding('sts:GetFederationToken', async () => {
      const request = await federationRequest(role, undefined, call)
      const send = (client: StsClient) =>
        client.call((sts, options) => sts.getFederationToken(request, options), { signal })
      await CloudMount.of(call).aws.sts(send, signal)
    })
    return [finding]
  },
  async session_token(role, run) {
    const { call } = run
    const { signal } = call
    const what = 'sts:GetSessionToken'
    if (role.mfaSerialNumber !== '') return [{ outcome: 'unknown', what, why: 'requires a code of the MFA device' }]
    const finding = await run.finding(what, async () => {
      const request = sessionRequest(role, { ttl: undefined, mfa_code: undefined }, call)
      const send = (client: StsClient) =>
        client.call((sts, options) => sts.getSessionToken(request, options), { signal })
      await CloudMount.of(call).aws.sts(send, signal)
    })
    return [finding]
  },
}

async function assumedFindings(role: CloudRole, run: DryRun): Promise<Finding[]> {
  const { call } = run
  const { aws } = CloudMount.of(call)
  const { signal } = call
  const arns = role.roleArns ?? []
  // Read once for all ARNs, as groups have many policies.
  const policy = sessionPolicyOf(role, call)
  policy.catch(() => undefined)
  const findings: Finding[] = []
  for (let begin = 0; begin < arns.length; begin += CONCURRENT_CHECKS) {
    const some = arns.slice(begin, begin + CONCURRENT_CHECKS).map((arn) =>
      run.finding(`sts:AssumeRole ${arn}`, async () => {
        const input = { arn, policy: await policy, role_session_name: undefined, ttl: undefined }
        const request = assumeRequest(role, input, call)
        await aws.sts((client) => client.call((sts, options) => sts.assumeRole(request, options), { signal }), signal)
      }),
    )
    findings.push(...(await Promise.all(some)))
  }
  return findings
}

export const checkPaths: readonly Path[] = [
  path({
    pattern: 'roles/:name/check',
    summary: 'Check whether a role can issue AWS credentials',
    fields: { name: inPath('Name of the role') },
    async read({ name }, call) {
      checkName(name)
      const role = roles.read((each) => call.storage.get(each), call.mount, name)
      if (!role) throw new Rejection(404)
      const findings = await CloudMount.of(call).runDryRun(() => roleFindings(role, new DryRun(call)))
      const missing = findings.flatMap((each) => each.missing ?? [])
      return {
        data: {
          credential_type: role.types.join(','),
          result: outcomeOf(findings),
          missing_actions: [...new Set(missing)].toSorted(),
          findings: findings.map(findingText),
        },
      }
    },
  }),
]
