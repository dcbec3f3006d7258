/** The option of all `cloud` commands. */
import { text } from '../../framework/options.ts'

export const cloudMountOption = {
  mount: text({ placeholder: 'PATH', help: 'Mount path of the engine', fallback: 'cloud' }),
}
