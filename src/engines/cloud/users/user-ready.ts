/** Waits until AWS accepts a new access key: for some seconds after it was made AWS does not know it everywhere. */
import { setTimeout as later } from 'node:timers/promises'
import { stsClient } from '../aws/aws.ts'
import { AwsFailure } from '../aws/aws-failure.ts'
import { stsTargets } from '../aws/aws-target.ts'
import type { RootConfig } from '../aws/root-record.ts'

const READY_MS = 20_000
const EVERY_MS = 250
/** Answers in a row: AWS has many parts, and not all of them know the key at the same time. */
const IN_A_ROW = 2

/** Resolves with why the key is not accepted yet; undefined when it is. */
export async function untilReady(
  config: RootConfig,
  key: { readonly accessKey: string; readonly secretKey: string },
  signal: AbortSignal,
): Promise<string | undefined> {
  const [target] = stsTargets(config)
  if (!target) return undefined
  const credentials = { accessKeyId: key.accessKey, secretAccessKey: key.secretKey }
  const client = stsClient({ target, credentials, attempts: 1 })
  const endAtMs = performance.now() + READY_MS
  let seen = 0
  try {
    for (;;) {
      try {
        await client.call((sts, options) => sts.getCallerIdentity({}, options), { signal })
        if (++seen === IN_A_ROW) return undefined
      } catch (error) {
        if (!(error instanceof AwsFailure)) throw error
        seen = 0
        if (performance.now() >= endAtMs || signal.aborted) return error.code === '' ? error.text : error.code
        await later(EVERY_MS)
      }
    }
  } finally {
    client.close()
  }
}
