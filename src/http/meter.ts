/**
 * What the exchanges of this room tell whoever counts them. They are plain numbers in objects that exist already, because
 * every request passes here; what is made of them is the counter's business.
 */

/** Counts of one operation. */
export interface OperationMeter {
  /** Requests that have begun and are not over. */
  underway: number
  /** Body bytes handed over so far, those of streams that go on included. */
  bytes: number
  /** A request is over. `ms` is how long it took; undefined for a stream that lasts as long as its caller likes. */
  answered(status: number, ms: number | undefined): void
}

export interface Meter {
  /** The counts of an operation by its name; `none` is for requests that no operation was found for. */
  operation(name: string): OperationMeter
}

const UNCOUNTED: OperationMeter = { underway: 0, bytes: 0, answered: () => undefined }

/** Where nobody counts. */
export const NO_METER: Meter = { operation: () => UNCOUNTED }
