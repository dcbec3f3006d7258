/**
 * Removes secrets from the files of a debug bundle. Servers neither send secrets in these responses nor log them. This is a second
 * check, because bundles are sent to other organizations: text that looks like a secret is removed.
 *
 * The root of a node chooses its log and its values. So each pattern takes linear time: repetitions in lookbehinds are bounded, and a
 * match does not depend on what follows a long run.
 */

const REDACTED = '<redacted>'
const TOO_DEEP = '<nested too deeply>'
/** Deeper values would exhaust the stack. */
const DEPTH_MAX = 100

/** Replacing shorter values would remove ordinary words. */
const KNOWN_LENGTH_MIN = 6

/** Names of JSON members whose text is removed. Names of files and of durations (`key_file`, `token_ttl`) do not match. */
const SECRET_NAME =
  /(?:^|[^a-z])(?:password|passwd|passphrase|secret|secrets|token|tokens|secretid|secret_id|secret_key|secretkey|private_key|privatekey|access_key|accesskey|unseal_key|credential|credentials|authorization|nkey_seed|seed|otp)$/i
/** Maps whose names operators choose, so no name identifies a secret: all values are removed. */
const FREE_MAPS = new Set(['Meta', 'meta', 'Headers', 'headers', 'HTTPAPIResponseHeaders', 'http_api_response_headers'])

const PATTERNS: readonly RegExp[] = [
  // Tokens of Vault, OpenBao and outpost.
  /\b(?:hv[sbr]|[sbr]|op)\.[A-Za-z0-9_-]{16,}/g,
  // NATS seeds, JSON web tokens, keys of AWS.
  /\bS[UANOCX][A-Z2-7]{48,}\b/g,
  /\beyJ[\w-]{8,}(?:\.[\w-]+)*/g,
  /\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b/g,
  /-----BEGIN [A-Z ]*PRIVATE KEY-----[^]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g,
  // `password=…` and `"password":"…"` in a log line.
  /(?<=\b(?:password|passwd|passphrase|secret|secret_key|secret_id|token|x-vault-token|x-nomad-token|authorization)(?:\\{0,4}"?\s{0,8}[:=]\s{0,8}\\{0,4}"?(?:Bearer\s{1,8})?))[^\s"',;}&<]{4,}/gi,
  // User and password in a URL.
  /(?<=[a-z][a-z0-9+.-]*:\/\/)[^\s/@"']+(?=@)/gi,
]

export class Redactor {
  readonly #known: readonly string[]
  /** Number of removed texts so far. */
  count = 0

  /** `known`: secrets that the command itself holds, such as its token. */
  constructor(known: readonly (string | undefined)[]) {
    const values = known.filter((value) => value !== undefined).filter(({ length }) => length >= KNOWN_LENGTH_MIN)
    // Longer ones first: one may contain another.
    this.#known = [...new Set(values)].sort((a, b) => b.length - a.length)
  }

  text(text: string): string {
    let result = text
    for (const value of this.#known) result = result.replaceAll(value, () => this.#removed())
    for (const pattern of PATTERNS) {
      result = result.replaceAll(pattern, (match) => (match === REDACTED ? match : this.#removed()))
    }
    return result
  }

  /** A parsed JSON value. */
  json(value: unknown, name = '', depth = 0): unknown {
    if (depth > DEPTH_MAX) return TOO_DEEP
    if (typeof value === 'string') {
      if (value !== '' && SECRET_NAME.test(name)) return this.#removed()
      return this.text(value)
    }
    if (Array.isArray(value)) return value.map((each: unknown) => this.json(each, name, depth + 1))
    if (typeof value !== 'object' || value === null) return value
    const isFree = FREE_MAPS.has(name)
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [
        this.text(key),
        isFree && typeof each === 'string' ? this.#removed() : this.json(each, key, depth + 1),
      ]),
    )
  }

  #removed(): string {
    this.count++
    return REDACTED
  }
}

/** The values of variables that hold secrets. */
export function secretVariables(env: NodeJS.ProcessEnv): string[] {
  return Object.entries(env).flatMap(([name, value]) =>
    value !== undefined && /(?:TOKEN|PASSWORD|SECRET|MFA|_KEY|SEED|CREDENTIALS?)$/i.test(name) ? [value] : [],
  )
}
