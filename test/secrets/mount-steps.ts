/** The life of a mount that mount-crash.test.ts cuts short: in the process of the test, which copies each step, and in a killed process. */
import type { CoreWorld } from '../helpers/core-world.ts'

/** What is said after each answer, in this order. */
export const STEPS = ['enabled', 'filled', 'tuned', 'moved', 'disabled'] as const
export type Step = (typeof STEPS)[number]

/** Of the mount's data: more than go in one page. */
export const ENTRIES = 1200

/** Enables, fills, tunes, moves and disables a mount, and says so after each answer. */
export async function liveAMount(world: CoreWorld, say: (step: Step) => void): Promise<void> {
  const ask = async (method: string, path: string, body?: unknown): Promise<void> => {
    const { status, text } = await world.ask(method, path, body)
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text}`)
  }
  await ask('POST', 'sys/mounts/a', { type: 'shelf' })
  const uuid = world.core.open.mounts.get('a/')?.record.uuid ?? ''
  say('enabled')
  const puts = Array.from({ length: ENTRIES }, (_, n) => ({
    path: `logical/${uuid}/e${n}`,
    value: Buffer.from(`${n}`),
  }))
  await world.core.barrier.commit({ puts, deletes: [] })
  say('filled')
  await ask('POST', 'sys/mounts/a/tune', { description: 'tuned' })
  say('tuned')
  await ask('POST', 'sys/remount', { from: 'a', to: 'b' })
  say('moved')
  await ask('DELETE', 'sys/mounts/b')
  say('disabled')
}
