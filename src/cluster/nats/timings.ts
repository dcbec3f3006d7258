/**
 * How long the processes of a cluster wait for each other: the one place of these times, with their reasons. What follows
 * from them (when a beat is late, how often is looked) is reckoned where it is used.
 *
 * Tests of whole clusters set shorter ones in `OUTPOST_TIMINGS`, a JSON object of the names below, which all processes of
 * that cluster inherit (docs/decisions/036). It can shorten a time and never lengthen it, so that an environment makes no process
 * look at its callers' rights later, or bear silence longer, than the code promises. It is no setting for operators: a
 * process that finds it says so in its log.
 */
import { Fault } from '../../platform/errors.ts'

export const DEFAULT_TIMINGS = {
  /** Between two beats of a node. A server takes it for down after three that are missed. */
  beatMs: 10_000,
  /** Least time between two states of a node: a host where much happens must not flood everybody. */
  stateRestMs: 500,
  /** One word of a server to a node in this time: the answer may be on its way. */
  askAgainMs: 3000,
  /** Between two looks of a server for nodes that are silent. */
  rosterSweepMs: 1000,
  /** Silence in a call after which the other side says that it is there. */
  aliveMs: 2000,
  /** Silence in a call after which the other side is given up: three words missed, and a little. */
  giveUpMs: 7000,
  /** From the first wait for NATS to the longest; each is cut by up to three quarters, so that a thousand agents do not come as one. */
  reconnectMinMs: 500,
  reconnectMaxMs: 4000,
  /** The other end of a dead wire to NATS is noticed within two of them. */
  natsPingMs: 5000,
  /** A subscription that was refused is tried again: permissions of a NATS server can change while we are connected. */
  resubscribeMs: 15_000,
  /** What is published last gets this long to go out. */
  drainMs: 2000,
  /** For so long a token that servers refused is refused without asking again. */
  refusedTokenMs: 2000,
  /** Between two looks at a caller's rights that servers answer: with the time that they have for it, at most ten seconds. */
  recheckMaxMs: 5000,
  /** Between two such looks that this process answers itself. */
  recheckOwnMs: 1000,
  /** A stretch of waiting for a node in which it has to send a least amount (`pace.ts`): a search through a large log is silent for minutes. */
  paceMs: 600_000,
  /** Between two questions to servers that are known to have another secrets core. A tenth of it: between two looks at one's own. */
  coreProbeMs: 10_000,
  /** Until a part of a job's logs that could not be followed is asked for again. */
  partAgainMs: 3000,
} as const satisfies Readonly<Record<string, number>>

type TimingName = keyof typeof DEFAULT_TIMINGS
export type Timings = Readonly<Record<TimingName, number>>

function isTimingName(name: string): name is TimingName {
  return Object.hasOwn(DEFAULT_TIMINGS, name)
}

/** The times with what `text` shortens; throws a Fault for what is no such object. */
export function timingsOf(text: string | undefined): Timings {
  const timings: Record<TimingName, number> = { ...DEFAULT_TIMINGS }
  if (!text) return timings
  for (const [name, value] of Object.entries(objectIn(text))) {
    if (!isTimingName(name)) throw new Fault(`OUTPOST_TIMINGS: no such time: ${name}`)
    const most = DEFAULT_TIMINGS[name]
    if (typeof value !== 'number' || !(value >= 1 && value <= most)) {
      throw new Fault(`OUTPOST_TIMINGS: ${name} must be a number from 1 to ${most}`)
    }
    timings[name] = value
  }
  return timings
}

function objectIn(text: string): object {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    value = undefined
  }
  if (typeof value !== 'object' || value === null) throw new Fault('OUTPOST_TIMINGS must be a JSON object of times')
  return value
}

/** Whether these are not the times that the documents promise. */
export const isShortened = Boolean(process.env['OUTPOST_TIMINGS'])
/** The times of this process. */
export const TIMINGS = timingsOf(process.env['OUTPOST_TIMINGS'])
