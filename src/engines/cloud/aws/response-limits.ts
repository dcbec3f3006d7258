/**
 * Limits of responses. The endpoint is configured and may be another machine, a proxy, or compromised. A response is read
 * completely before the SDK parses it, with limits of size and time, which the SDK does not have for bodies. A document type,
 * which AWS never sends, is refused, because a few bytes of entities can expand to megabytes.
 */

/** A page of 100 items of AWS has about 50 KB and 1,000 elements, with a depth of 8. */
const RESPONSE_BYTES_MAX = 256 * 1024
const ELEMENTS_MAX = 10_000
const DEPTH_MAX = 64
const [LESS, GREATER, SLASH, MARK, QUOTE, APOSTROPHE] = [0x3c, 0x3e, 0x2f, 0x21, 0x22, 0x27]

/** Not a response of AWS. The request may have taken effect. */
export class InvalidResponse extends Error {
  override readonly name = 'InvalidResponse'
}

/** Rejects with an InvalidResponse for a body that is too long, too slow, or not a valid document. */
export async function readResponse(stream: AsyncIterable<Uint8Array>, limitMs: number): Promise<Uint8Array> {
  const reader = stream[Symbol.asyncIterator]()
  const late = Promise.withResolvers<never>()
  const why = `the response was not complete within ${limitMs / 1000} s`
  const timer = setTimeout(() => late.reject(new InvalidResponse(why)), limitMs)
  const chunks: Uint8Array[] = []
  let length = 0
  try {
    for (;;) {
      const next = await Promise.race([reader.next(), late.promise])
      if (next.done === true) break
      chunks.push(next.value)
      length += next.value.length
      if (length > RESPONSE_BYTES_MAX)
        throw new InvalidResponse(`the response has more than ${RESPONSE_BYTES_MAX} bytes`)
    }
  } finally {
    clearTimeout(timer)
    // Closes the connection if the body is not complete.
    void reader.return?.()
  }
  const body = Buffer.concat(chunks)
  checkDocument(body)
  return body
}

/** Throws an InvalidResponse. Counts an empty-element tag at its end, because `/>` may also be in text or in an attribute. */
function checkDocument(bytes: Uint8Array): void {
  let [depth, elements, isTag, quote] = [0, 0, false, 0]
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (isTag && byte !== LESS) {
      if (quote !== 0) quote = byte === quote ? 0 : quote
      else if (byte === QUOTE || byte === APOSTROPHE) quote = byte
      else if (byte === GREATER) {
        isTag = false
        if (bytes[at - 1] === SLASH) depth--
      }
    }
    if (byte !== LESS) continue
    ;[isTag, quote] = [true, 0]
    const next = bytes[at + 1]
    if (next === MARK) throw new InvalidResponse('the response has a document type or a comment')
    depth += next === SLASH ? -1 : 1
    if (++elements > 2 * ELEMENTS_MAX) throw new InvalidResponse('the response has too many elements')
    if (depth > DEPTH_MAX) throw new InvalidResponse('the response has too deeply nested elements')
  }
}
