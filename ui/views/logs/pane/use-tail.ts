import { useEffect, useMemo } from 'preact/hooks'
import { token } from '../../../app/session.ts'
import { TailController } from './tail-controller.ts'
import type { TailOptions } from './tail-options.ts'

/** A tail that runs while the component is mounted; another one when `key` or the token of the session changes. */
export function useTail(key: string, options: () => TailOptions): TailController {
  const tail = useMemo(() => new TailController(options()), [key, token.value])
  useEffect(() => {
    tail.start()
    return () => tail.close()
  }, [tail])
  return tail
}
