/** The published test values of RFC 4226 and RFC 6238. */
import type { Algorithm } from '../../../src/engines/totp/codes.ts'

const DIGITS = '1234567890'

/** Appendix B of RFC 6238: as long as the hash, which its text does not say (erratum 2866). */
export const RFC6238_KEYS: Readonly<Record<Algorithm, Buffer>> = {
  SHA1: Buffer.from(DIGITS.repeat(2)),
  SHA256: Buffer.from(DIGITS.repeat(4).slice(0, 32)),
  SHA512: Buffer.from(DIGITS.repeat(7).slice(0, 64)),
}

/** Unix time in seconds, and the codes of eight digits then. */
export const RFC6238_TIMES: readonly (readonly [number, Readonly<Record<Algorithm, string>>])[] = [
  [59, { SHA1: '94287082', SHA256: '46119246', SHA512: '90693936' }],
  [1_111_111_109, { SHA1: '07081804', SHA256: '68084774', SHA512: '25091201' }],
  [1_111_111_111, { SHA1: '14050471', SHA256: '67062674', SHA512: '99943326' }],
  [1_234_567_890, { SHA1: '89005924', SHA256: '91819424', SHA512: '93441116' }],
  [2_000_000_000, { SHA1: '69279037', SHA256: '90698825', SHA512: '38618901' }],
  [20_000_000_000, { SHA1: '65353130', SHA256: '77737706', SHA512: '47863826' }],
]

/** Appendix D of RFC 4226, for the counters from 0 on, with the key of SHA1. */
export const RFC4226_CODES: readonly string[] = [
  '755224',
  '287082',
  '359152',
  '969429',
  '338314',
  '254676',
  '287922',
  '162583',
  '399871',
  '520489',
]
