/** The query protocol of IAM and STS: form bodies in, XML out. */

/** A refusal with the error code and text of AWS. */
export class AwsError extends Error {
  readonly code: string
  readonly status: number

  constructor(code: string, message: string, status = 400) {
    super(message)
    this.code = code
    this.status = status
  }
}

export function noSuchEntity(what: string, name: string): AwsError {
  return new AwsError('NoSuchEntity', `The ${what} with name ${name} cannot be found.`, 404)
}

export function validation(message: string): AwsError {
  return new AwsError('ValidationError', message, 400)
}

/** The parameters of one request. */
export class Form {
  readonly #pairs: URLSearchParams

  constructor(body: string) {
    this.#pairs = new URLSearchParams(body)
  }

  get names(): string[] {
    return [...this.#pairs.keys()]
  }

  optional(name: string): string | undefined {
    return this.#pairs.get(name) ?? undefined
  }

  required(name: string): string {
    const value = this.optional(name)
    if (value === undefined || value === '') {
      throw validation(`1 validation error detected: Value null at '${name}' failed to satisfy constraint`)
    }
    return value
  }

  integer(name: string): number | undefined {
    const value = this.optional(name)
    if (value === undefined) return undefined
    if (!/^-?\d+$/.test(value)) throw validation(`'${name}' is not an integer`)
    return Number(value)
  }

  /** `Name.member.1`, or with a `key`, `Name.member.1.key`. */
  list(name: string, key?: string): string[] {
    const found: string[] = []
    for (let at = 1; ; at++) {
      const value = this.optional(`${name}.member.${at}${key === undefined ? '' : `.${key}`}`)
      if (value === undefined) return found
      found.push(value)
    }
  }

  tags(): Map<string, string> {
    const [keys, values] = [this.list('Tags', 'Key'), this.list('Tags', 'Value')]
    if (keys.length > 50) throw new AwsError('LimitExceeded', 'Cannot exceed quota for TagsPerUser: 50', 409)
    const tags = new Map<string, string>()
    for (const [at, key] of keys.entries()) {
      const value = values[at] ?? ''
      if (key.length > 128 || value.length > 256 || !/^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$/u.test(key + value)) {
        throw validation(`1 validation error detected: Value at 'tags.${at + 1}.member' failed to satisfy constraint`)
      }
      if (tags.has(key)) throw new AwsError('InvalidInput', 'Duplicate tag keys found.')
      tags.set(key, value)
    }
    return tags
  }
}

export type Xml = string | number | boolean | Date | undefined | readonly Xml[] | { readonly [name: string]: Xml }

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (each) => ESCAPES[each] ?? each)
}

function written(value: Xml): string {
  if (value === undefined) return ''
  if (Array.isArray(value)) return value.map((each) => `<member>${written(each)}</member>`).join('')
  if (value instanceof Date) return value.toISOString().replace(/\.\d+Z$/, 'Z')
  if (typeof value !== 'object') return escaped(String(value))
  const parts = Object.entries(value as { readonly [name: string]: Xml })
  return parts.map(([name, each]) => (each === undefined ? '' : `<${name}>${written(each)}</${name}>`)).join('')
}

const NAMESPACES: Readonly<Record<string, string>> = {
  iam: 'https://iam.amazonaws.com/doc/2010-05-08/',
  sts: 'https://sts.amazonaws.com/doc/2011-06-15/',
}

export function answerXml(service: string, action: string, result: Xml, requestId: string): string {
  const inner = result === undefined ? '' : `<${action}Result>${written(result)}</${action}Result>`
  const id = `<ResponseMetadata><RequestId>${requestId}</RequestId></ResponseMetadata>`
  return `<${action}Response xmlns="${NAMESPACES[service] ?? ''}">${inner}${id}</${action}Response>`
}

export function errorXml({ code, message, status }: AwsError, requestId: string): string {
  const type = status < 500 ? 'Sender' : 'Receiver'
  const error = `<Error><Type>${type}</Type><Code>${code}</Code><Message>${escaped(message)}</Message></Error>`
  return `<ErrorResponse>${error}<RequestId>${requestId}</RequestId></ErrorResponse>`
}
