/**
 * A dry run of a role: everything that giving credentials by it needs is looked at, and nothing stays. Users are not made; a
 * session of STS, whose making is the only way to see whether it is allowed, is thrown away and ends by itself.
 */
import type { StsClient } from '../aws/aws.ts'
import type { Trial } from './check-limits.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { failureFinding, type Finding } from '../mount/finding.ts'
import { documentFault, DOCUMENT_LENGTH_MAX } from '../aws/policy-document.ts'
import type { CredentialType, Role } from '../mount/role-record.ts'
import { actionFindings } from '../root/iam-permission-check.ts'
import { assumeRequest, federationRequest, filterOf, namesOf, sessionRequest } from '../sessions/sessions.ts'
import { usernameOf } from '../mount/username.ts'

/** Of several roles at a time: AWS counts what one account asks. */
const AT_ONCE = 4

/** Rejects where the server is at fault, and with a Rejection (503) once the caller is gone. */
export async function roleFindings(role: Role, trial: Trial): Promise<Finding[]> {
  const documents = documentFindings(role)
  if (role.types.length === 0) {
    return [{ outcome: 'failed', what: 'role', why: 'its data is invalid: write it anew' }]
  }
  const { arn, finding } = await rootFinding(trial)
  if (arn === undefined) return [finding, ...documents]
  const found = [finding, ...documents, ...(await managedFindings(role, trial))]
  for (const type of role.types) found.push(...(await LOOKS[type](role, trial, arn)))
  return found
}

/** Who the root credentials are: everybody may ask that, so what fails are the credentials. */
async function rootFinding(trial: Trial): Promise<{ readonly finding: Finding; readonly arn?: string }> {
  const { call } = trial
  const { signal } = call
  const what = 'root credentials'
  try {
    const { Arn: arn = '' } = await CloudMount.of(call).aws.sts(
      (client) => client.call((sts, options) => sts.getCallerIdentity({}, options), { signal }),
      signal,
    )
    return { finding: { outcome: 'ok', what, why: arn }, arn }
  } catch (error) {
    trial.checkCaller()
    return { finding: failureFinding(what, error) }
  }
}

function documentFindings({ policyDocument }: Role): Finding[] {
  if (policyDocument === '') return []
  const what = 'policy_document'
  const fault = documentFault(policyDocument)
  if (fault !== undefined) return [{ outcome: 'failed', what, why: fault }]
  return [{ outcome: 'ok', what, why: `${policyDocument.length} of ${DOCUMENT_LENGTH_MAX} characters` }]
}

/** Managed policies and, for users, groups: whether they are there. */
async function managedFindings(role: Role, trial: Trial): Promise<Finding[]> {
  const { call } = trial
  const { signal } = call
  const { iam } = CloudMount.of(call).aws
  const { iamGroups, permissionsBoundaryArn: boundary, policyArns, types } = role
  const arns = [...(policyArns ?? []), ...(boundary === '' ? [] : [boundary])]
  const groups = types.includes('iam_user') ? (iamGroups ?? []) : []
  const found: Finding[] = []
  for (const PolicyArn of arns) {
    const look = () => iam.call((client, options) => client.getPolicy({ PolicyArn }, options), { signal })
    found.push(unneeded(await trial.finding(`policy ${PolicyArn}`, look)))
  }
  for (const GroupName of groups) {
    const look = () => iam.call((client, options) => client.getGroup({ GroupName, MaxItems: 1 }, options), { signal })
    found.push(unneeded(await trial.finding(`group ${GroupName}`, look)))
  }
  return found
}

/** Giving credentials does not need what was asked here: that it is not allowed says nothing. */
function unneeded(finding: Finding): Finding {
  const { missing, ...rest } = finding
  if (missing === undefined) return finding
  return { ...rest, outcome: 'unknown', why: `cannot be looked for: allow ${missing}` }
}

type Look = (role: Role, trial: Trial, arn: string) => Promise<Finding[]>

const LOOKS: Readonly<Record<CredentialType, Look>> = {
  async iam_user(role, trial, arn) {
    const { call } = trial
    const { aws } = CloudMount.of(call)
    const nameOf = async () => usernameOf(aws.config.usernameTemplate, 'IAM', namesOf(role, call))
    const name = await trial.finding('username_template', nameOf)
    if (name.outcome !== 'ok') return [name]
    const found = await actionFindings(aws.iam, { role, arn, username: await nameOf() }, call.signal)
    trial.checkCaller()
    return found
  },
  assumed_role: assumedFindings,
  async federation_token(role, trial) {
    const { call } = trial
    const { signal } = call
    const finding = await trial.finding('sts:GetFederationToken', async () => {
      const request = await federationRequest(role, undefined, call)
      const send = (client: StsClient) =>
        client.call((sts, options) => sts.getFederationToken(request, options), { signal })
      await CloudMount.of(call).aws.sts(send, signal)
    })
    return [finding]
  },
  async session_token(role, trial) {
    const { call } = trial
    const { signal } = call
    const what = 'sts:GetSessionToken'
    if (role.mfaSerialNumber !== '') return [{ outcome: 'unknown', what, why: 'it needs a code of the MFA device' }]
    const finding = await trial.finding(what, async () => {
      const request = sessionRequest(role, { ttl: undefined, mfa_code: undefined }, call)
      const send = (client: StsClient) =>
        client.call((sts, options) => sts.getSessionToken(request, options), { signal })
      await CloudMount.of(call).aws.sts(send, signal)
    })
    return [finding]
  },
}

async function assumedFindings(role: Role, trial: Trial): Promise<Finding[]> {
  const { call } = trial
  const { aws } = CloudMount.of(call)
  const { signal } = call
  const arns = role.roleArns ?? []
  // Once for all ARNs: groups have many policies.
  const filter = filterOf(role, call)
  filter.catch(() => undefined)
  const found: Finding[] = []
  for (let begin = 0; begin < arns.length; begin += AT_ONCE) {
    const some = arns.slice(begin, begin + AT_ONCE).map((arn) =>
      trial.finding(`sts:AssumeRole ${arn}`, async () => {
        const input = { arn, filter: await filter, role_session_name: undefined, ttl: undefined }
        const request = assumeRequest(role, input, call)
        await aws.sts((client) => client.call((sts, options) => sts.assumeRole(request, options), { signal }), signal)
      }),
    )
    found.push(...(await Promise.all(some)))
  }
  return found
}
