/**
 * Credentials of IAM users, from creation to revocation. The intent is durable before the request to AWS. One commit stores the
 * lease of the user and deletes the intent.
 */
import * as v from 'valibot'
import type { Batch } from '../../../storage/barrier/storage.ts'
import { Fault } from '../../../platform/errors.ts'
import { type EngineCall, type LeaseCall, Rejection, type Reply } from '../../framework/engine.ts'
import { rejectionOf } from '../aws/aws-failure.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { type UserIntent, intentPath, intentPut, newIntent, users } from '../intents/user-records.ts'
import { leaseTermsOf } from '../root/config-paths.ts'
import { checkLocation, locationField } from '../aws/account.ts'
import type { CloudRole } from '../mount/role-record.ts'
import { namesOf } from '../sessions/sessions.ts'
import { createIamUser, waitUntilAccepted } from './user-creation.ts'
import { removeUser } from '../intents/user-removal.ts'
import { usernameOf } from '../templates/username.ts'

/** A user that is not found within this time after its creation may still appear. */
const NEW_USER_MS = 60_000

const internalSchema = v.object({
  username: v.string(),
  keys: v.array(v.string()),
  inline: v.array(v.string()),
  attached: v.array(v.string()),
  groups: v.array(v.string()),
  /** The role. */
  policy: v.optional(v.string(), ''),
  place: locationField,
})

export async function userCredentials(role: CloudRole, call: EngineCall, waits: boolean): Promise<Reply> {
  const { mount, storage } = call
  const { aws, rollback } = CloudMount.of(call)
  const username = usernameOf(aws.config.usernameTemplate, 'IAM', namesOf(role, call))
  const { iam } = aws
  const place = await aws.locationOf(iam).catch((error: unknown) => {
    throw rejectionOf('Error creating IAM user', error)
  })
  const intent = newIntent(username, role.name, call.nowMs, place)
  rollback.begin(intent)
  let isTagged = true
  try {
    await storage.commit({ puts: [intentPut(intent)], deletes: [] })
    const created = await createIamUser({
      iam,
      intent,
      role,
      mount: mount.uuid,
      signal: call.signal,
      onCreated: () => rollback.created(intent),
      onUntagged: async () => {
        isTagged = false
        await storage.commit({ puts: [intentPut({ ...intent, isTagged })], deletes: [] })
      },
      onNameTaken: async () => {
        await storage.commit({ puts: [], deletes: [intentPath(intent)] })
      },
    })
    const notAccepted = waits ? await waitUntilAccepted(aws.config, created, call.signal) : undefined
    if (call.signal.aborted) throw new Rejection(503, 'the request was canceled')
    return userReply(role, call, { ...intent, isTagged }, created, notAccepted)
  } catch (error) {
    rollback.end(intent)
    throw error
  }
}

function userReply(
  role: CloudRole,
  call: EngineCall,
  intent: UserIntent,
  { accessKey, resources, secretKey }: Awaited<ReturnType<typeof createIamUser>>,
  notAccepted: string | undefined,
): Reply {
  const { leaseSeconds, maxSeconds } = leaseTermsOf((each) => call.storage.get(each))
  const { username } = intent
  const user = {
    format: 1 as const,
    name: username,
    role: role.name,
    intent: intent.id,
    createdAtMs: call.nowMs,
    place: intent.place,
    isTagged: intent.isTagged,
    isForgotten: false,
  }
  const warnings = notAccepted === undefined ? [] : [`AWS does not accept the new access key yet: ${notAccepted}`]
  return {
    data: { access_key: accessKey, secret_key: secretKey, session_token: null, security_token: null },
    lease: {
      ttlSeconds: leaseSeconds,
      maxTtlSeconds: maxSeconds,
      renewable: true,
      internal: { is_sts: false, username, policy: role.name, ...resources, place: intent.place },
    },
    ...(warnings.length > 0 && { warnings }),
    batch: { puts: [users.put(call.mount, user)], deletes: [intentPath(intent)] },
    onSettled: () => CloudMount.of(call).rollback.end(intent),
  }
}

/** Revokes a lease. Rejects with the error for operators. */
export async function revokeUser(call: LeaseCall): Promise<Batch | undefined> {
  const { internal, issuedAtMs, mount, nowMs, signal } = call
  if (internal['is_sts'] === true) {
    if (internal['session'] !== undefined) CloudMount.of(call).sessions.forget(internal['session'])
    return undefined
  }
  const parsed = v.safeParse(internalSchema, internal)
  if (!parsed.success) throw new Fault('secret is missing username internal data')
  const { place, policy, username, ...resources } = parsed.output
  const { aws, metrics } = CloudMount.of(call)
  const { iam } = aws
  const options = { signal, checkLocation: async () => place && checkLocation(place, await aws.locationOf(iam)) }
  let outcome: 'removed' | 'absent'
  try {
    outcome = await removeUser(iam, username, options, resources)
  } catch (error) {
    metrics.add('revocations', policy, { result: 'failed' })
    throw rejectionOf(`user ${username}`, error)
  }
  metrics.add('revocations', policy, { result: 'revoked' })
  const known = users.read((each) => call.storage.pending(each), mount, username)
  const isHidden = outcome === 'absent' && known !== undefined && nowMs - issuedAtMs < NEW_USER_MS
  // Checked again once AWS is consistent.
  const again = known && {
    ...newIntent(username, known.role, nowMs, place),
    id: known.intent,
    isTagged: known.isTagged,
  }
  return { puts: isHidden && again ? [intentPut(again)] : [], deletes: [users.path(mount, username)] }
}

/** The lease is removed by force while the user exists: it becomes an orphan. */
export function forgetUser({ internal, mount, storage }: LeaseCall): Batch | undefined {
  const username = internal['username']
  if (typeof username !== 'string') return undefined
  const known = users.read((each) => storage.pending(each), mount, username)
  return known && { puts: [users.put(mount, { ...known, isForgotten: true })], deletes: [] }
}
