/** Where our answers about versioned secrets are not the recorded ones, and why. */
import type { Difference } from '../../helpers/openbao-replay.ts'

interface Table {
  readonly differences: readonly Difference[]
  readonly skip?: readonly { readonly exchange: string | RegExp; readonly why: string }[]
}

const OWN_TEXT = 'says what is wrong in words of our own, without a piece of the input'
const NO_500 = 'a mistake of a caller is no fault of the server'
const HEAD = 'HEAD is GET without a body, as everywhere in HTTP'
const DURATION = 'says what a duration looks like'
const LIMITED = 'a number that cannot be meant is refused, not cut'
const NULL_DATA =
  'null in a patch removes members; the data as a whole stays an object, so that it can be patched again'
const EMPTY_404 = 'a text, so that stock commands do not take an empty 404 for success'
const SLASH = 'a slash at the end changes nothing'
const WHO = 'who made, deleted and changed it last is told, as the other server of the field does'
const WHO_DIFFERS: Difference = {
  exchange: /./,
  what: /^data\.(key_info\.[^.]+\.)?(versions\.\d+\.(created|deleted)_by|last_updated_by)/,
  why: WHO,
}
const CONSEQUENCE = 'follows from an exchange before it that was answered differently'

export const DIFFERENCES: Readonly<Record<string, Table>> = {
  'kv-data': {
    differences: [
      { exchange: 'HEAD data', what: 'status', why: HEAD },
      {
        exchange: 'namespace header unknown',
        what: /^(errors|link)/,
        why: 'says that there is the root namespace only, and where that is documented',
      },
      { exchange: 'LIST data folder', what: 'status', why: 'says where lists are' },
      { exchange: 'OPTIONS data', what: 'status', why: 'a preflight is answered' },
      { exchange: 'HELP data', what: /^(help|openapi)/, why: 'help in words of our own' },
      { exchange: 'cas literal 3.0', what: 'status', why: '3.0 is the number 3' },
      { exchange: /^body (array|string|number)$/, what: 'errors[0]', why: OWN_TEXT },
      { exchange: /^(bad JSON|bad JSON text|trailing garbage|big ints|BOM)$/, what: 'errors[0]', why: OWN_TEXT },
      { exchange: 'two JSON documents', what: 'status', why: 'which of them is meant is not guessed' },
      { exchange: 'trailing slash read', what: 'status', why: NO_500 },
      { exchange: /^double slash/, what: 'status', why: 'the path is cleaned at once, not by a redirect' },
      { exchange: /^dot (segment|write)$/, what: 'status', why: 'refused, not redirected' },
      { exchange: /^bad utf8 key/, what: 'status', why: NO_500 },
      { exchange: /^(control char|newline|NUL|zero width) key$/, what: 'body', why: 'an error is always JSON' },
      { exchange: 'bad percent', what: 'body', why: 'an error is always JSON' },
      { exchange: 'lone surrogate read', what: 'data.data.a', why: 'what was written comes back' },
      { exchange: 'wrap header bad', what: 'errors[0]', why: DURATION },
      { exchange: /^bare (path|write) without v1$/, what: 'status', why: 'every path is served without /v1 too' },
    ],
    skip: [
      {
        exchange: /^(big value|body over|1200 string|deep 5000)/,
        why: 'the recording has only the beginning of the body',
      },
    ],
  },
  'kv-config': {
    differences: [
      { exchange: 'negative max', what: 'status', why: LIMITED },
      { exchange: /^read (negative|dva int|dva negative)$/, what: 'data.max_versions', why: CONSEQUENCE },
      { exchange: 'LIST config', what: 'status', why: 'the path is there, the verb is not' },
      { exchange: 'bare config', what: 'status', why: 'every path is served without /v1 too' },
      { exchange: 'trailing slash', what: 'status', why: 'a slash at the end changes nothing' },
    ],
  },
  'kv-delete-undelete-destroy': {
    differences: [
      WHO_DIFFERS,
      { exchange: / versions object$/, what: 'errors[0]', why: 'an object is no list of versions' },
    ],
  },
  'kv-list': {
    differences: [
      WHO_DIFFERS,
      { exchange: 'exclude_deleted', what: /./, why: 'served, as the other server of the field does' },
      { exchange: /^LIST root/, what: 'data.keys', why: 'other files of the recording had written there' },
      { exchange: /^LIST mount root/, what: 'warnings[0]', why: 'names the other stock command' },
      { exchange: 'LIST limit max', what: 'status', why: 'max means all, as where a policy has a limit' },
      { exchange: /scan$/i, what: /^data\.keys\[/, why: 'folders are in order, too' },
      {
        exchange: 'detailed',
        what: /^data\.key_info\.b\//,
        why: 'a folder is no secret, also where a secret has its name',
      },
      { exchange: 'bare LIST', what: 'status', why: 'every path is served without /v1 too' },
      { exchange: 'LIST config', what: 'status', why: 'the path is there, the verb is not' },
    ],
    skip: [{ exchange: /^raw/, why: 'raw bytes: test/http/list-verb.test.ts sends its own' }],
  },
  'kv-metadata': {
    differences: [
      WHO_DIFFERS,
      { exchange: 'HEAD metadata', what: 'status', why: HEAD },
      { exchange: /^max_versions (negative|huge)$/, what: 'status', why: LIMITED },
      { exchange: 'get max_versions negative', what: 'status', why: CONSEQUENCE },
      { exchange: /^get /, what: 'data.current_metadata_version', why: CONSEQUENCE },
      { exchange: 'cm patch over 64 total', what: 'status', why: 'the limit holds for the whole' },
      { exchange: 'get over 64', what: /^data\.custom_metadata\.extra/, why: CONSEQUENCE },
      { exchange: 'get after dva 0s', what: 'data.delete_version_after', why: '0s means no term, also in a patch' },
      { exchange: /^patch cm (number|bool)$/, what: 'status', why: NO_500 },
      { exchange: 'patch missing', what: 'body', why: EMPTY_404 },
      { exchange: /^cm (nested|list|string|array)$/, what: 'errors[0]', why: OWN_TEXT },
      { exchange: 'cm unprintable', what: 'errors[0]', why: 'their order is by chance there' },
      { exchange: /^(patch|post) root$/, what: 'warnings', why: 'also says which parameters nobody takes' },
      { exchange: 'delete root slash', what: 'status', why: SLASH },
      { exchange: 'get root slash', what: /./, why: SLASH },
      { exchange: 'get after slash delete', what: 'status', why: 'DELETE of a name with a slash removes nothing' },
      {
        exchange: 'engine5key2 metadata',
        what: /^data\./,
        why: "a secret's own max_versions counts, also where it is less",
      },
    ],
  },
  'kv-patch': {
    differences: [
      { exchange: 'read after data null', what: 'data.data', why: NULL_DATA },
      {
        exchange: /^patch (data empty|content type charset|content type upper|over null data)$/,
        what: 'status',
        why: NO_500,
      },
      { exchange: /^patch (extra fields|nested proto)$/, what: 'status', why: CONSEQUENCE },
      { exchange: /^patch (no|bad) content type$/, what: 'errors[0]', why: 'says what is wanted' },
      { exchange: 'patch bad JSON', what: 'errors[0]', why: OWN_TEXT },
      {
        exchange: /^patch (missing key|metadata-only|metadata-only cas 0|cas required missing key)$/,
        what: 'body',
        why: EMPTY_404,
      },
      { exchange: /^read (over null data|proto)$/, what: /^data\./, why: CONSEQUENCE },
    ],
  },
  'kv-subkeys': {
    differences: [
      { exchange: 'null', what: 'data.subkeys', why: 'no data has no keys' },
      { exchange: 'trailing slash', what: 'status', why: NO_500 },
      { exchange: 'root', what: 'warnings[0]', why: 'names the other stock command' },
      { exchange: 'root slash', what: /./, why: SLASH },
    ],
  },
}
