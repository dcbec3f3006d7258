/**
 * Credentials that are users of IAM, from their making to their removal. The intent is durable before AWS is asked; the lease
 * of the user is stored, and the intent cleared, in one commit.
 */
import * as v from 'valibot'
import type { Batch } from '../../../storage/barrier/storage.ts'
import { Fault } from '../../../platform/errors.ts'
import { type EngineCall, type LeaseCall, Rejection, type Reply } from '../../framework/engine.ts'
import { rejectionOf } from '../aws/aws-failure.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { type Intent, intentPath, intentPut, newIntent, users } from '../intents/intent-record.ts'
import { leaseTermsOf } from '../mount/lease-paths.ts'
import { checkPlace, placeField } from '../aws/record-place.ts'
import type { Role } from '../mount/role-record.ts'
import { namesOf } from '../sessions/sessions.ts'
import { makeUser } from './user-making.ts'
import { untilReady } from './user-ready.ts'
import { removeUser } from '../intents/user-removal.ts'
import { usernameOf } from '../mount/username.ts'

/** A user that is not found so soon after it was made may come to light. */
const YOUNG_MS = 60_000

const internalSchema = v.object({
  username: v.string(),
  keys: v.array(v.string()),
  inline: v.array(v.string()),
  attached: v.array(v.string()),
  groups: v.array(v.string()),
  /** Its role. */
  policy: v.optional(v.string(), ''),
  place: placeField,
})

export async function userCredentials(role: Role, call: EngineCall, isWaiting: boolean): Promise<Reply> {
  const { mount, storage } = call
  const { aws, rollback } = CloudMount.of(call)
  const username = usernameOf(aws.config.usernameTemplate, 'IAM', namesOf(role, call))
  const { iam } = aws
  const place = await aws.placeOf(iam).catch((error: unknown) => {
    throw rejectionOf('Error creating IAM user', error)
  })
  const intent = newIntent(username, role.name, call.nowMs, place)
  rollback.begin(intent)
  let isTagged = true
  try {
    await storage.commit({ puts: [intentPut(intent)], deletes: [] })
    const made = await makeUser({
      iam,
      intent,
      role,
      mount: mount.uuid,
      signal: call.signal,
      onMade: () => rollback.made(intent),
      onUntagged: async () => {
        isTagged = false
        await storage.commit({ puts: [intentPut({ ...intent, isTagged })], deletes: [] })
      },
      onTaken: async () => {
        await storage.commit({ puts: [], deletes: [intentPath(intent)] })
      },
    })
    const late = isWaiting ? await untilReady(aws.config, made, call.signal) : undefined
    if (call.signal.aborted) throw new Rejection(503, 'the request was given up')
    return userReply(role, call, { ...intent, isTagged }, made, late)
  } catch (error) {
    rollback.end(intent)
    throw error
  }
}

function userReply(
  role: Role,
  call: EngineCall,
  intent: Intent,
  { accessKey, belongings, secretKey }: Awaited<ReturnType<typeof makeUser>>,
  late: string | undefined,
): Reply {
  const { leaseSeconds, maxSeconds } = leaseTermsOf((each) => call.storage.get(each))
  const { username } = intent
  const known = {
    format: 1 as const,
    name: username,
    role: role.name,
    intent: intent.id,
    createdAtMs: call.nowMs,
    place: intent.place,
    isTagged: intent.isTagged,
    isForgotten: false,
  }
  const warnings = late === undefined ? [] : [`AWS does not accept the new access key yet: ${late}`]
  return {
    data: { access_key: accessKey, secret_key: secretKey, session_token: null, security_token: null },
    lease: {
      ttlSeconds: leaseSeconds,
      maxTtlSeconds: maxSeconds,
      renewable: true,
      internal: { is_sts: false, username, policy: role.name, ...belongings, place: intent.place },
    },
    ...(warnings.length > 0 && { warnings }),
    batch: { puts: [users.put(call.mount, known)], deletes: [intentPath(intent)] },
    landed: () => CloudMount.of(call).rollback.end(intent),
  }
}

/** Takes back what a lease stands for. Rejects with what operators are told. */
export async function revoked(call: LeaseCall): Promise<Batch | undefined> {
  const { internal, issuedAtMs, mount, nowMs, signal } = call
  if (internal['is_sts'] === true) {
    if (internal['session'] !== undefined) CloudMount.of(call).sessions.forget(internal['session'])
    return undefined
  }
  const parsed = v.safeParse(internalSchema, internal)
  if (!parsed.success) throw new Fault('secret is missing username internal data')
  const { place, policy, username, ...belongings } = parsed.output
  const { aws, counts } = CloudMount.of(call)
  const { iam } = aws
  const options = { signal, checkPlace: async () => place && checkPlace(place, await aws.placeOf(iam)) }
  let outcome: 'removed' | 'absent'
  try {
    outcome = await removeUser(iam, username, options, belongings)
  } catch (error) {
    counts.add('revocations', policy, { result: 'failed' })
    throw rejectionOf(`user ${username}`, error)
  }
  counts.add('revocations', policy, { result: 'revoked' })
  const known = users.read((each) => call.storage.pending(each), mount, username)
  const isHidden = outcome === 'absent' && known !== undefined && nowMs - issuedAtMs < YOUNG_MS
  // It is looked for once more when every part of AWS knows it, if it is there at all.
  const again = known && {
    ...newIntent(username, known.role, nowMs, place),
    id: known.intent,
    isTagged: known.isTagged,
  }
  return { puts: isHidden && again ? [intentPut(again)] : [], deletes: [users.path(mount, username)] }
}

/** The core forgets a lease whose user is still there: it is kept among those that no lease stands for. */
export function forgotten({ internal, mount, storage }: LeaseCall): Batch | undefined {
  const username = internal['username']
  if (typeof username !== 'string') return undefined
  const known = users.read((each) => storage.pending(each), mount, username)
  return known && { puts: [users.put(mount, { ...known, isForgotten: true })], deletes: [] }
}
