/**
 * MessagePack of the messages on the bus: plain values only.
 *
 * Pointers (the library's extension for values that occur several times) are refused: they let a message of some kilobytes
 * stand for a state of billions of values, which a check of its types would visit one by one. Without them the work that a
 * message costs is bounded by its bytes.
 */
import { Packr } from 'msgpackr'

export const packr = new Packr({ useRecords: false, mapsAsObjects: true, structuredClone: false })
