/**
 * The web interface at `/ui/`: theory of operation.
 *
 * The interface is a set of static files (`ui/`, built by `scripts/ui-bundle.ts`). It has no permissions: the page calls the same
 * endpoints as any other client, with the token of its user, and a server forwards its calls to other hosts.
 *
 * Promises. The files contain no data of this host, so they need no token. The content security policy allows scripts, styles and
 * connections of this origin only: neither inline scripts nor `eval`, no other site may embed the page, and no cookie is used, so another
 * site cannot use the token. File names under `assets/` contain a hash of the content and are cached forever; the page is validated on
 * each load.
 *
 * Failure modes. In a checkout without the development packages the files cannot be built: the answer is 404 with the reason.
 */
import { messageOf } from '../platform/errors.ts'
import { type AnyOperation, handle, WholeAnswer } from '../platform/operation.ts'
import { type Field, header, type InputOf, pathParam, schema } from '../platform/schema.ts'
import { type AssetSource, pageOf, type UiAsset, UI_PAGE } from './assets.ts'

/** Where the page is served; its views have paths below it. */
const UI_ROOT = '/ui/'
const ASSETS = 'assets/'
const YEAR_SECONDS = 31_536_000

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

const SECURITY_HEADERS = {
  'Content-Security-Policy': POLICY,
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Permissions-Policy': 'camera=(), geolocation=(), microphone=()',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
}

const fields = {
  path: pathParam('A file under `assets/`, or the path of a view'),
  accept_encoding: header('The files are available with `br` and without'),
  if_none_match: header('Tag of the page that the browser has'),
}

type FileInput = InputOf<typeof fields>

export interface UiParts {
  readonly source: AssetSource
}

const uiFile = handle(
  {
    name: 'ui.file',
    summary: 'Read a file of the web interface',
    http: ['GET /ui/:path'],
    target: 'server',
    input: schema(fields),
    output: 'answer',
    errorFormat: 'plain',
    open: true,
    authorize: () => undefined,
  },
  ({ source }: UiParts) => ({
    async run(input: FileInput) {
      const isAsset = input.path.startsWith(ASSETS)
      const files = await filesOf(source)
      if (typeof files === 'string') return absence(`the web interface is not available: ${files}`)
      const asset = isAsset ? files.get(input.path) : (files.get(pageOf(input.path)) ?? files.get(UI_PAGE))
      if (!asset) return absence(`the web interface has no file "${input.path.slice(0, 100)}"`)
      return isAsset ? assetAnswer(asset, input) : pageAnswer(asset, input)
    },
  }),
)

/** The files, or why there are none. */
async function filesOf(source: AssetSource): Promise<ReadonlyMap<string, UiAsset> | string> {
  try {
    return await source.files()
  } catch (error) {
    return messageOf(error)
  }
}

/** With the policy of the page, as each answer below its path. */
function absence(text: string): WholeAnswer {
  const headers = { ...SECURITY_HEADERS, 'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-cache' }
  return new WholeAnswer(404, headers, Buffer.from(text))
}

function assetAnswer(asset: UiAsset, input: FileInput): WholeAnswer {
  return answerOf(asset, input, { 'Cache-Control': `public, max-age=${YEAR_SECONDS}, immutable` })
}

function pageAnswer(asset: UiAsset, input: FileInput): WholeAnswer {
  const headers = { 'Cache-Control': 'no-cache', ETag: `"${asset.hash}"` }
  if (input.if_none_match === headers.ETag) return new WholeAnswer(304, { ...SECURITY_HEADERS, ...headers }, undefined)
  return answerOf(asset, input, headers)
}

/** The files contain no secrets and are compressed before any request, so BREACH does not apply. */
function answerOf(asset: UiAsset, { accept_encoding = '' }: FileInput, caching: WholeAnswer['headers']): WholeAnswer {
  const isCompressed =
    asset.brotli !== undefined && /(^|,)\s*br\s*(,|;(?!\s*q=0(\.0*)?\s*(,|$))|$)/.test(accept_encoding)
  const headers = {
    ...SECURITY_HEADERS,
    ...caching,
    'Content-Type': asset.contentType,
    Vary: 'Accept-Encoding',
    ...(isCompressed && { 'Content-Encoding': 'br' }),
  }
  return new WholeAnswer(200, headers, isCompressed ? asset.brotli : asset.bytes)
}

/** The whole query, encoded; empty without one. */
const wholeQuery: Field<string> = {
  in: 'query',
  type: 'string',
  description: 'Any query: the page receives it',
  required: false,
  parse: ({ query }) => new URLSearchParams(query.map(([name, value]): [string, string] => [name, value])).toString(),
}

const uiRedirect = handle(
  {
    name: 'ui.redirect',
    summary: 'Redirect to the web interface',
    http: ['GET /', 'GET /ui'],
    target: 'server',
    input: schema({ query: wholeQuery }),
    output: 'answer',
    errorFormat: 'plain',
    open: true,
    authorize: () => undefined,
  },
  () => ({ run: ({ query }) => Promise.resolve(redirectAnswer(query === '' ? UI_ROOT : `${UI_ROOT}?${query}`)) }),
)

/** As recorded of stock agents. `location` has no character that HTML treats specially, except `&`. */
function redirectAnswer(location: string): WholeAnswer {
  const headers = {
    'Content-Type': 'text/html; charset=utf-8',
    Location: location,
    Vary: 'Accept-Encoding',
  }
  const link = `<a href="${location.replaceAll('&', '&amp;')}">Temporary Redirect</a>.\n\n`
  return new WholeAnswer(307, headers, link)
}

/** The operations that serve the web interface. */
export function uiOperations(source: AssetSource): AnyOperation[] {
  return [uiFile.in({ source }), uiRedirect.in(undefined)]
}
