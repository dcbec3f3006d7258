import { useEffect, useMemo } from 'preact/hooks'
import { token } from '../../../app/session.ts'
import { TailController, type TailOptions } from './tail-controller.ts'

/** A tail that runs while the component is mounted; another one when `key` or the token of the session changes. */
export function useTail(key: string, options: () => TailOptions): TailController {
  const tail = useMemo(() => new TailController(options()), [key, token.value])
  useEffect(() => {
    tail.start()
    return () => tail.close()
  }, [tail])
  return tail
}
